// Rotation of pairs of x [B, S, H, D] by angles given as cos and sin [S, D/2] or [B, S, D/2]:
//   (a, b) -> (a cos - b sin, a sin + b cos); the inverse turns by the negative angle.
#include "cpu/rope.h"

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

void rotate_interleaved(const float* x, const float* cos, const float* sin, float sign, int64_t half, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1], s = sign * sin[i];
    y[2 * i] = a * cos[i] - b * s;
    y[2 * i + 1] = a * s + b * cos[i];
  }
}

void rotate_halves(const float* x, const float* cos, const float* sin, float sign, int64_t half, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half], s = sign * sin[i];
    y[i] = a * cos[i] - b * s;
    y[i + half] = a * s + b * cos[i];
  }
}

}  // namespace

void rotate_heads(Cpu& cpu, const Rotation& r, const lk_tensor& shape, const float* x, float* y) {
  const int64_t length = shape.dims[1], heads = shape.dims[2], depth = shape.dims[3], half = depth / 2;
  const int64_t positions = shape.dims[0] * length;
  const float sign = r.inverse ? -1.0f : 1.0f;
  const auto rotate = r.interleaved ? rotate_interleaved : rotate_halves;
  parallel_for(cpu, positions, heads * depth, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      const int64_t angle = (r.per_image ? position : position % length) * half;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t offset = (position * heads + h) * depth;
        rotate(x + offset, r.cos + angle, r.sin + angle, sign, half, y + offset);
      }
    }
  });
}

void rope(Cpu& cpu, const lk_rope_params& p) {
  const FloatIn x(cpu, p.x), cos(cpu, p.cos), sin(cpu, p.sin);
  const FloatOut y(cpu, p.y);
  rotate_heads(cpu, {cos, sin, p.cos.rank == 3, p.interleaved != 0, p.inverse != 0}, p.x, x, y);
}

}  // namespace lk::cpu
