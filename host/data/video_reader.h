// Reads one video. FFmpeg does it, in a module of its own (data/video/reader.cpp) that is loaded when the first video
// comes: it brings sixty libraries along, which who trains on images does without.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace lh {

struct VideoStream {
  ImageSize size;       // before orientation, with square pixels
  int orientation = 1;  // EXIF's number
  double fps = 0;
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

// The module's function lora_video_open. Decoders take no memory for frames of more than `most_pixels`.
using OpenVideo = VideoReader*(const char* path, int64_t most_pixels);

}  // namespace lh
