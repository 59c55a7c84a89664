// Rotation of pairs of x [B, S, H, D] by angles given as cos and sin [S, D/2] or [B, S, D/2]:
//   (a, b) -> (a cos - b sin, a sin + b cos); the inverse turns by the negative angle.
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

void rope(Cpu& cpu, const lk_rope_params& p) {
  const int64_t length = p.x.dims[1], heads = p.x.dims[2], depth = p.x.dims[3], half = depth / 2;
  const int64_t positions = p.x.dims[0] * length;
  const FloatIn x(cpu, p.x), cos(cpu, p.cos), sin(cpu, p.sin);
  const FloatOut y(cpu, p.y);
  const float sign = p.inverse ? -1.0f : 1.0f;
  const auto rotate = p.interleaved ? rotate_interleaved : rotate_halves;
  parallel_for(cpu, positions, heads * depth, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      const int64_t angle = (p.cos.rank == 2 ? position % length : position) * half;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t offset = (position * heads + h) * depth;
        rotate(x + offset, cos + angle, sin + angle, sign, half, y + offset);
      }
    }
  });
}

}  // namespace lk::cpu
