// y = layer_norm(x) * (1 + scale) + shift: layer norm with a weight and a bias per image.
#include "cpu/convert.h"
#include "cpu/layer_norm.h"

namespace lk::cpu {

namespace {

void add_one(const float* scale, int64_t count, float* weight) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) weight[i] = 1.0f + scale[i];
}

}  // namespace

void modulated_norm(Cpu& cpu, const lk_modulated_norm_params& p) {
  const int64_t images = p.x.dims[0], length = p.x.dims[1], cols = p.x.dims[2];
  const FloatIn x(cpu, p.x), scale(cpu, p.scale), shift(cpu, p.shift);
  const FloatOut y(cpu, p.y);
  const Scratch<float> weight(cpu, images * cols);
  add_one(scale, images * cols, weight.data());
  layer_norm_rows(cpu, {x, weight.data(), shift, images * length, cols, length, p.eps}, y);
}

void modulated_norm_backward(Cpu& cpu, const lk_modulated_norm_backward_params& p) {
  const int64_t images = p.x.dims[0], length = p.x.dims[1], cols = p.x.dims[2];
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), scale(cpu, p.scale);
  const FloatOut dx(cpu, p.dx), dscale(cpu, p.dscale), dshift(cpu, p.dshift);
  const Scratch<float> weight(cpu, images * cols);
  if (dx != nullptr) add_one(scale, images * cols, weight.data());
  layer_norm_rows_backward(cpu, {x, weight.data(), nullptr, images * length, cols, length, p.eps}, dy, dx, dscale,
                           dshift);
}

}  // namespace lk::cpu
