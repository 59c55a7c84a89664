// Reads one video, and writes those with sound. FFmpeg does it, in a module of its own (data/video) that is loaded when
// the first video comes: it brings sixty libraries along, which who trains on images does without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"

namespace lh {

struct VideoStream {
  ImageSize size;       // before orientation, with square pixels
  int orientation = 1;  // EXIF's number
  double fps = 0;
  bool sound = false;  // there is a sound track
  std::string comment = {};
};

// Its functions throw std::runtime_error with cause and fix; video.cpp adds the file's name.
class VideoReader {
 public:
  virtual ~VideoReader() = default;
  // What the file says; from the first frame on, what its frames are.
  virtual VideoStream stream() const = 0;
  // Decodes the next frame; false behind the last.
  virtual bool next() = 0;
  // The frame that was decoded, not turned.
  virtual Image picture() = 0;
};

// The sound track of a video, as two channels. Its functions throw as VideoReader's do.
class SoundReader {
 public:
  virtual ~SoundReader() = default;
  // Decodes on; false behind the end.
  virtual bool next() = 0;
  virtual int64_t rate() const = 0;  // samples a second, known from the first next() on
  // When what was decoded is heard: in seconds from when the first frame is seen.
  virtual double at() const = 0;
  virtual std::span<const float> samples() const = 0;  // in [-1, 1], left and right in turns
};

// The module's functions: lora_video_open, whose decoders take no memory for frames of more than `most_pixels`;
using OpenVideo = VideoReader*(const char* path, int64_t most_pixels);
// lora_sound_open, nullptr where there is no sound track;
using OpenSound = SoundReader*(const char* path);
// lora_sound_resample, of two channels, from so many samples a second to so many, which are appended;
using ResampleSound = void(std::span<const float> samples, int64_t from, int64_t to, std::vector<float>& resampled);
// lora_movie_write: an MP4 file of frames of one size, whose sides are even, with two channels of sound; comment: empty
// for none. Throws std::runtime_error where FFmpeg cannot encode it.
struct Movie {
  std::span<const Image> frames;
  double fps;
  std::span<const float> sound;
  int64_t rate;  // samples of sound a second
  const std::string& comment;
};
using WriteMovie = void(const Movie& movie, std::vector<std::byte>& file);

}  // namespace lh
