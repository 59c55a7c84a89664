// The sound of videos in, as two channels of float32, and clips with sound out. FFmpeg's libraries do it, by the module
// that reads videos (data/video_reader.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace lh {

// A part of a video's sound track, and what is made of it.
struct SoundPart {
  double start = 0, seconds = 0;  // from the first frame on
  int64_t rate = 0, count = 0;    // so many samples of each channel, so many a second
  bool normalized = false;        // the loudest sample of the whole track is 0.999
};
// [count, 2], left and right, in [-1, 1]. Where `count` samples at `rate` last longer or shorter than `seconds`, it is
// played that much slower or faster; beyond the track is silence. Throws lh::Error(Code::data), also where there is no
// track.
std::vector<float> read_sound(const std::filesystem::path& path, const SoundPart& part);

// Sound of two channels, [n, 2].
struct Sound {
  int64_t rate = 0;
  std::vector<float> samples = {};
};
// MP4: H.264 and AAC. comment: empty for none. Sides of frames are even. Throws lh::Error where videos cannot be read
// either (why_no_videos), or FFmpeg does not encode these.
std::vector<std::byte> encode_movie(std::span<const Image> frames, double fps, const Sound& sound,
                                    const std::string& comment);

}  // namespace lh
