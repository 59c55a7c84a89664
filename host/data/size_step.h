// What the sizes of a model's images and clips are whole multiples of.
#pragma once

#include <cstdint>

namespace lh {

struct SizeStep {
  SizeStep(int64_t pixels, int64_t frames = 0) : pixels(pixels), frames(frames) {}
  int64_t pixels;
  int64_t frames;  // behind the first; 0: of models of images
};

}  // namespace lh
