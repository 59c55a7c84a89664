// y [M, out] = x [M, in] weight^T + bias: one product, whose result starts as the bias.
#include "cpu/linear.h"

#include <cstring>

#include "cpu/bf16_gemm.h"
#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/weight_product.h"

namespace lk::cpu {

void fill_rows(const Cpu& cpu, const float* row, int64_t rows, int64_t cols, float* y) {
  parallel_for(cpu, rows, cols, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(y + i * cols, row, static_cast<size_t>(cols) * sizeof(float));
  });
}

void linear(Cpu& cpu, const lk_linear_params& p) {
  const int64_t out = p.weight.dims[0], in = p.weight.dims[1], rows = numel(p.x) / in;
  const FloatIn bias(cpu, p.bias);
  const FloatOut y(cpu, p.y);
  if (bias != nullptr) fill_rows(cpu, bias, rows, out, y);
  weight_product(cpu, {p.products, true, rows, p.weight, p.weight_scale, p.x}, bias != nullptr ? 1.0f : 0.0f, y);
}

void linear_backward(Cpu& cpu, const lk_linear_backward_params& p) {
  const int64_t out = last_dim(p.dy), rows = numel(p.dy) / out;
  const bool in_bf16 = present(p.dweight) && multiply_in_bf16(p.dy, p.x), in_f32 = present(p.dweight) && !in_bf16;
  const FloatIn dy(cpu, in_f32 || present(p.dbias) ? p.dy : lk_tensor{});
  if (present(p.dx)) {
    const FloatOut dx(cpu, p.dx);
    weight_product(cpu, {p.products, false, rows, p.weight, p.weight_scale, p.dy, dy}, 0.0f, dx);
  }
  if (present(p.dweight)) {
    const int64_t in = last_dim(p.x);
    const FloatIn x(cpu, in_f32 ? p.x : lk_tensor{});
    const FloatOut dweight(cpu, p.dweight);
    if (in_bf16) {
      bf16_gemm(cpu, out, in, rows, bf16_matrix(p.dy, out, true), bf16_matrix(p.x, in), false, dweight, in);
    } else {
      gemm(cpu, out, in, rows, 1.0f, {dy, out, true}, {x, in}, 0.0f, dweight, in);
    }
  }
  if (present(p.dbias)) {
    const FloatOut dbias(cpu, p.dbias);
    column_sums(cpu, dy, rows, out, dbias);
  }
}

}  // namespace lk::cpu
