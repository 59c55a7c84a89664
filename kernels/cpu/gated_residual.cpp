// y = x + gate * z with a row of gates per image. Backward: dz = gate dy, dgate = sum over the rows of dy z. With
// `rms`, z's RMS norm stands for z: a norm whose weight the gate is a factor of.
#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/rms_norm.h"

namespace lk::cpu {

namespace {

void normed_residual(Cpu& cpu, const lk_gated_residual_params& p) {
  const int64_t images = p.x.dims[0], length = p.x.dims[1], cols = p.x.dims[2];
  const FloatIn x(cpu, p.x), gate(cpu, p.gate), z(cpu, p.z), own(cpu, p.weight);
  const FloatOut y(cpu, p.y);
  const Scratch<float> weight(cpu, images * cols);
  combine_weights(own, gate, 0.0f, images, cols, weight.data());
  rms_norm_rows(cpu, {z, weight.data(), images * length, cols, length, p.eps}, {x}, y);
}

void normed_residual_backward(Cpu& cpu, const lk_gated_residual_backward_params& p) {
  const int64_t images = p.dy.dims[0], length = p.dy.dims[1], cols = p.dy.dims[2];
  const FloatIn dy(cpu, p.dy), gate(cpu, p.gate), z(cpu, p.z), own(cpu, p.weight);
  const FloatOut dz(cpu, p.dz), dgate(cpu, p.dgate);
  const Scratch<float> weight(cpu, images * cols);
  if (dz != nullptr) combine_weights(own, gate, 0.0f, images, cols, weight.data());
  rms_norm_rows_backward(cpu, {z, weight.data(), images * length, cols, length, p.eps}, dy, nullptr, dz, dgate);
  if (dgate != nullptr) factor_gradient(own, images, cols, dgate);
}

}  // namespace

void gated_residual(Cpu& cpu, const lk_gated_residual_params& p) {
  if (p.rms != 0) return normed_residual(cpu, p);
  const int64_t length = p.x.dims[1], cols = p.x.dims[2];
  const FloatIn x(cpu, p.x), gate(cpu, p.gate), z(cpu, p.z);
  const FloatOut y(cpu, p.y);
  parallel_for(cpu, p.x.dims[0] * length, cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float *const from = x + row * cols, *const added = z + row * cols, *const g = gate + row / length * cols;
      float* const out = y + row * cols;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) out[c] = from[c] + g[c] * added[c];
    }
  });
}

void gated_residual_backward(Cpu& cpu, const lk_gated_residual_backward_params& p) {
  if (p.rms != 0) return normed_residual_backward(cpu, p);
  const int64_t images = p.dy.dims[0], length = p.dy.dims[1], cols = p.dy.dims[2];
  const FloatIn dy(cpu, p.dy), gate(cpu, p.gate), z(cpu, p.z);
  const FloatOut dz(cpu, p.dz), dgate(cpu, p.dgate);
  if (dz != nullptr) {
    parallel_for(cpu, images * length, cols, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float *const from = dy + row * cols, *const g = gate + row / length * cols;
        float* const out = dz + row * cols;
#pragma omp simd
        for (int64_t c = 0; c < cols; ++c) out[c] = g[c] * from[c];
      }
    });
  }
  if (dgate == nullptr) return;
  const Scratch<double> sums(cpu, cols);
  for (int64_t image = 0; image < images; ++image) {
    const float *const from = dy + image * length * cols, *const other = z + image * length * cols;
    column_sums(cpu, length, cols, sums.data(), [=](int64_t row, double* own) {
      const float *const g = from + row * cols, *const values = other + row * cols;
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) own[c] += static_cast<double>(g[c]) * static_cast<double>(values[c]);
    });
    for (int64_t c = 0; c < cols; ++c) dgate[image * cols + c] = static_cast<float>(sums.data()[c]);
  }
}

}  // namespace lk::cpu
