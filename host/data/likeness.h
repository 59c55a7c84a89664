// Whether two pictures look the same, whatever their files are: scaled, encoded anew, brighter.
#pragma once

#include <array>
#include <cstdint>

#include "data/image.h"

namespace lh {

// A picture in few bytes, to be compared with many others.
struct Likeness {
  std::array<uint64_t, 2> slopes{};  // where it gets brighter to the right, and downwards: a perceptual hash
  std::array<uint8_t, 256> grey{};   // 16 x 16 means
  double aspect = 1;                 // width to height
};
Likeness likeness_of(const Image& image);

bool look_alike(const Likeness& a, const Likeness& b);

}  // namespace lh
