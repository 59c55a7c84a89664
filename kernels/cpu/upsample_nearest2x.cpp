// Every pixel of x [N, H, W, C] becomes a 2x2 block of y [N, 2H, 2W, C]; the gradient sums the block.
#include <cstring>

#include "cpu/convert.h"

namespace lk::cpu {

void upsample_nearest2x(Cpu& cpu, const lk_upsample_nearest2x_params& p) {
  const int64_t lines = p.x.dims[0] * p.x.dims[1], width = p.x.dims[2], channels = p.x.dims[3];
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  const int64_t line = 2 * width * channels;  // of y
  parallel_for(cpu, lines, 4 * width * channels, [&](int64_t begin, int64_t end) {
    const size_t bytes = static_cast<size_t>(channels) * sizeof(float);
    for (int64_t i = begin; i < end; ++i) {
      float* const first = y + 2 * i * line;
      for (int64_t j = 0; j < width; ++j) {
        const float* const pixel = x + (i * width + j) * channels;
        std::memcpy(first + 2 * j * channels, pixel, bytes);
        std::memcpy(first + (2 * j + 1) * channels, pixel, bytes);
      }
      std::memcpy(first + line, first, static_cast<size_t>(line) * sizeof(float));
    }
  });
}

void upsample_nearest2x_backward(Cpu& cpu, const lk_upsample_nearest2x_params& p) {
  const int64_t lines = p.y.dims[0] * p.y.dims[1], width = p.y.dims[2], channels = p.y.dims[3];
  const FloatIn dy(cpu, p.x);
  const FloatOut dx(cpu, p.y);
  const int64_t line = 2 * width * channels;  // of dy
  parallel_for(cpu, lines, 4 * width * channels, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const float* const top = dy + 2 * i * line + 2 * j * channels;
        const float* const bottom = top + line;
        float* const to = dx + (i * width + j) * channels;
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          to[c] = (top[c] + top[channels + c]) + (bottom[c] + bottom[channels + c]);
        }
      }
    }
  });
}

}  // namespace lk::cpu
