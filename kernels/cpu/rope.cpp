// Rotation of pairs of x [B, S, H, D] by angles given as cos and sin [S, D/2] or [B, S, D/2]:
//   (a, b) -> (a cos - b sin, a sin + b cos); the inverse turns by the negative angle.
// Tables as wide as D have an angle for each number: (a cos_a - b sin_a, a sin_b + b cos_b); the inverse is the
// transpose.
#include "cpu/rope.h"

#include "cpu/convert.h"

namespace lk::cpu {

namespace {

// Of the first numbers of pairs and of the second.
struct Angles {
  const float *cos_a, *cos_b, *sin_a, *sin_b;
};

void rotate_interleaved(const float* x, const Angles& angles, float sign, int64_t half, float* y) {
  const float *const cos = angles.cos_a, *const sin = angles.sin_a;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1], s = sign * sin[i];
    y[2 * i] = a * cos[i] - b * s;
    y[2 * i + 1] = a * s + b * cos[i];
  }
}

void rotate_halves(const float* x, const Angles& angles, float sign, int64_t half, float* y) {
  const auto [cos_a, cos_b, sin_a, sin_b] = angles;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    y[i] = a * cos_a[i] - b * (sign * sin_a[i]);
    y[i + half] = a * (sign * sin_b[i]) + b * cos_b[i];
  }
}

}  // namespace

Rotation rotation_of(const float* cos, const float* sin, const lk_tensor& tables, const lk_tensor& x, bool interleaved,
                     bool inverse) {
  return {cos, sin, tables.rank == 3, last_dim(tables) == last_dim(x), interleaved, inverse};
}

void rotate_heads(Cpu& cpu, const Rotation& r, const lk_tensor& shape, const float* x, float* y) {
  const int64_t length = shape.dims[1], heads = shape.dims[2], depth = shape.dims[3], half = depth / 2;
  const int64_t positions = shape.dims[0] * length, width = r.wide ? depth : half, second = r.wide ? half : 0;
  const float sign = r.inverse ? -1.0f : 1.0f;
  const auto rotate = r.interleaved ? rotate_interleaved : rotate_halves;
  parallel_for(cpu, positions, heads * depth, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      const int64_t angle = (r.per_image ? position : position % length) * width;
      const float *const cos = r.cos + angle, *const sin = r.sin + angle;
      // The transposed matrix has each number's sine beside the other number.
      const Angles angles = {cos, cos + second, sin + (r.inverse ? second : 0), sin + (r.inverse ? 0 : second)};
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t offset = (position * heads + h) * depth;
        rotate(x + offset, angles, sign, half, y + offset);
      }
    }
  });
}

void rope(Cpu& cpu, const lk_rope_params& p) {
  const FloatIn x(cpu, p.x), cos(cpu, p.cos), sin(cpu, p.sin);
  const FloatOut y(cpu, p.y);
  rotate_heads(cpu, rotation_of(cos, sin, p.cos, p.x, p.interleaved != 0, p.inverse != 0), p.x, x, y);
}

}  // namespace lk::cpu
