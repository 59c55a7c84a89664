#include "data/video.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/lower.h"
#include "data/codecs.h"
#include "data/video_module.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<VideoReader> opened(const fs::path& path) {
  require_video(path);
  std::unique_ptr<VideoReader> reader(video_module().open(path.c_str(), max_image_pixels));
  const ImageSize said = reader->stream().size;
  if (said.width != 0 || said.height != 0) check_image_size(said.width, said.height);
  return reader;
}

// The next frame, and the first one's size is one that images may have.
bool next(VideoReader& reader, int64_t frame) {
  if (!reader.next()) return false;
  if (frame == 0) check_image_size(reader.stream().size.width, reader.stream().size.height);
  return true;
}

ImageSize upright(const VideoStream& stream) {
  if (stream.orientation >= 5) return {stream.size.height, stream.size.width};
  return stream.size;
}

}  // namespace

bool is_video_name(const fs::path& path) {
  constexpr std::array<std::string_view, 8> names{".mp4", ".avi", ".mov", ".webm", ".mkv", ".wmv", ".m4v", ".flv"};
  return std::ranges::find(names, lower(path.extension().string())) != names.end();
}

VideoInfo video_info(const fs::path& path) {
  return about_video(path, [&] {
    const std::unique_ptr<VideoReader> reader = opened(path);
    VideoInfo info;
    for (; next(*reader, info.frames); ++info.frames)
      if (info.frames == max_video_frames)
        fail(Code::data, "more than {} frames: cut it into shorter clips", max_video_frames);
    if (info.frames == 0) fail(Code::data, "there is no frame in it that can be decoded: remove it");
    info.size = upright(reader->stream());
    info.fps = reader->stream().fps;
    info.sound = reader->stream().sound;
    info.comment = reader->stream().comment;
    return info;
  });
}

VideoFrames::VideoFrames(fs::path path) : path_(std::move(path)) { open(); }

VideoFrames::~VideoFrames() = default;

void VideoFrames::open() {
  about_video(path_, [&] { reader_ = opened(path_); });
  decoded_ = 0;
}

Image VideoFrames::at(int64_t number) {
  if (number < 0) fail(Code::internal, "video {}: frame {} is asked for", path_.string(), number);
  if (number < decoded_ - 1) open();
  return about_video(path_, [&] {
    for (; decoded_ <= number; ++decoded_)
      if (!next(*reader_, decoded_))
        fail(Code::data, "frame {} is asked for, and it has {} (frames count from 0)", number, decoded_);
    return apply_orientation(reader_->picture(), reader_->stream().orientation);
  });
}

std::vector<int64_t> even_frames(int64_t frames, int64_t count) {
  if (frames < 1 || count < 1) fail(Code::internal, "a clip of {} frames of a video with {}", count, frames);
  if (count == 1) return {(frames - 1) / 2};
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    // The nearest whole number; of two that are as near, the even one.
    const int64_t whole = i * (frames - 1) / (count - 1), twice = 2 * (i * (frames - 1) % (count - 1));
    const bool up = twice > count - 1 || (twice == count - 1 && whole % 2 == 1);
    indices.push_back(whole + (up ? 1 : 0));
  }
  return indices;
}

std::vector<int64_t> frames_at(const VideoInfo& info, double fps, int64_t start, int64_t count) {
  if (!(fps > 0) || start < 0 || count < 1)
    fail(Code::internal, "a clip of {} frames from {} on, {} a second", count, start, fps);
  constexpr double rounding = 1e-9;  // 72000/1001 are three times 24000/1001
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) {
    const double ahead = std::floor(static_cast<double>(i) * info.fps / fps + rounding);
    if (!(info.fps > 0) || !(ahead < static_cast<double>(info.frames - start))) return {};
    indices.push_back(start + static_cast<int64_t>(ahead));
  }
  return indices;
}

}  // namespace lh
