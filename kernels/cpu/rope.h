// Rotation of the pairs of every head of a tensor [B, S, H, D], for rope and for rms_norm_rope, which has a norm before
// it.
#pragma once

#include "cpu/cpu.h"

namespace lk::cpu {

struct Rotation {
  const float *cos, *sin;  // [S, D/2], or [B, S, D/2] where they are per_image; of wide ones the last axis is D
  bool per_image, wide, interleaved, inverse;
};
Rotation rotation_of(const float* cos, const float* sin, const lk_tensor& tables, const lk_tensor& x, bool interleaved,
                     bool inverse);

// x and y have the dimensions of `shape` and are dense; y may be x.
void rotate_heads(Cpu& cpu, const Rotation& rotation, const lk_tensor& shape, const float* x, float* y);

}  // namespace lk::cpu
