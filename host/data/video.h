// Video clips in: what a file has, and its frames as 8-bit RGB the right way up. FFmpeg's libraries read them, by a
// module of its own (data/video_reader.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/image.h"

namespace lh {

// What a video file says of itself, upright.
struct VideoInfo {
  ImageSize size;            // with square pixels
  int64_t frames = 0;        // that decode, whatever the file's header says
  double fps = 0;            // on average; 0 where the file does not say
  bool sound = false;        // there is a sound track
  std::string comment = {};  // of whoever made it
};

inline constexpr int64_t max_video_frames = 100'000;

// By its extension, whether or not this build reads videos.
bool is_video_name(const std::filesystem::path& path);
// The module is there, and so are FFmpeg's libraries, which this loads.
bool reads_videos();
std::string why_no_videos();  // and what to install; empty where they are read

// Decodes all of it. Throws lh::Error(Code::data) naming the file, what is wrong and what to do: no video, damaged,
// without a frame, larger than images may be, longer than max_video_frames, or that videos cannot be read here.
VideoInfo video_info(const std::filesystem::path& path);

class VideoReader;

// The frames of one video. Throws as video_info does, and where one is not there.
class VideoFrames {
 public:
  explicit VideoFrames(std::filesystem::path path);
  ~VideoFrames();
  // They count from 0. Decodes on to it, or from the first one where it lies before the last that was asked for.
  Image at(int64_t number);

 private:
  void open();

  std::filesystem::path path_;
  std::unique_ptr<VideoReader> reader_;
  int64_t decoded_ = 0;  // so many
};

// The frames that make a clip of `count`: spread evenly over all of a video, the first and the last among them; of a
// clip of one the middle frame.
std::vector<int64_t> even_frames(int64_t frames, int64_t count);
// Or those that are seen at `fps` a second from frame `start` on. Empty where the video is too short for it.
std::vector<int64_t> frames_at(const VideoInfo& info, double fps, int64_t start, int64_t count);

}  // namespace lh
