// y = norm(x) * (1 + scale) + shift: layer norm with a weight and a bias per image, or RMS norm so, whose own weight is
// a factor of that of the image.
#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/layer_norm.h"
#include "cpu/rms_norm.h"

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
  if (p.rms != 0) {
    combine_weights(FloatIn(cpu, p.weight), scale, 1.0f, images, cols, weight.data());
    rms_norm_rows(cpu, {x, weight.data(), images * length, cols, length, p.eps}, {shift, length}, y);
    return;
  }
  add_one(scale, images * cols, weight.data());
  layer_norm_rows(cpu, {x, weight.data(), shift, images * length, cols, length, p.eps}, y);
}

void modulated_norm_backward(Cpu& cpu, const lk_modulated_norm_backward_params& p) {
  const int64_t images = p.x.dims[0], length = p.x.dims[1], cols = p.x.dims[2];
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), scale(cpu, p.scale), added(cpu, p.added);
  const FloatOut dx(cpu, p.dx), dscale(cpu, p.dscale), dshift(cpu, p.dshift);
  const Scratch<float> weight(cpu, images * cols);
  if (p.rms != 0) {
    const FloatIn own(cpu, p.weight);
    if (dx != nullptr) combine_weights(own, scale, 1.0f, images, cols, weight.data());
    rms_norm_rows_backward(cpu, {x, weight.data(), images * length, cols, length, p.eps}, dy, added, dx, dscale);
    if (dscale != nullptr) factor_gradient(own, images, cols, dscale);
    for (int64_t image = 0; dshift != nullptr && image < images; ++image)
      column_sums(cpu, dy + image * length * cols, length, cols, dshift + image * cols);
    return;
  }
  if (dx != nullptr) add_one(scale, images * cols, weight.data());
  layer_norm_rows_backward(cpu, {x, weight.data(), nullptr, images * length, cols, length, p.eps}, dy, added, dx,
                           dscale, dshift);
}

}  // namespace lk::cpu
