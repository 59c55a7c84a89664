// What a sample is denoised as: the latents of what is seen or, where there is sound, those and the sound's as one
// tensor [1, N], for samplers know of no parts.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "data/bucket.h"
#include "plugin/recipe.h"

namespace lh {

class JoinedLatents {
 public:
  JoinedLatents(const Recipe& recipe, const Bucket& bucket);
  Shape shape() const;
  // float32: what is seen, [1, (t,) h, w, C]; behind it, where there is some, the sound [1, rows, C].
  std::vector<HostTensor> apart(const HostTensor& x) const;
  HostTensor together(std::vector<HostTensor> parts) const;

 private:
  std::vector<Shape> parts_;
};

}  // namespace lh
