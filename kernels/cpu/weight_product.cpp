#include "cpu/weight_product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/bf16_gemm.h"
#include "cpu/convert.h"
#include "cpu/formats.h"
#include "cpu/gemm.h"
#include "row_rounding.h"

namespace lk::cpu {

namespace {

float value_of_code(float v, bool integers) {
  if (integers) return std::clamp(std::nearbyint(v), -largest_i8_code, largest_i8_code);
  return FloatE4M3::widen(FloatE4M3::narrow(v));
}

// The values of the codes of [rows, cols], after each column was multiplied with its factor, and the factors of the
// rows.
struct RowCodes {
  RowCodes(Cpu& cpu, bool integers, const float* a, int64_t rows, int64_t cols, const float* column_factors)
      : codes(cpu, rows * cols), factors(cpu, rows) {
    float *const to = codes.data(), *const of_row = factors.data();
    parallel_for(cpu, rows, cols, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* const v = to + row * cols;
        float most = 0;
        bool numbers = true;
        for (int64_t i = 0; i < cols; ++i) {
          v[i] = a[row * cols + i] * (column_factors == nullptr ? 1.0f : column_factors[i]);
          most = std::fmax(most, std::fabs(v[i]));
          numbers &= !std::isnan(v[i]);
        }
        const float factor = std::max(most / (integers ? largest_i8_code : largest_e4m3_code), least_row_factor),
                    inverse = 1 / factor;
        of_row[row] = numbers ? factor : std::numeric_limits<float>::quiet_NaN();
        const bool finite = numbers && std::isfinite(factor);  // else the factor makes NaN of zeros
        for (int64_t i = 0; i < cols; ++i) v[i] = finite ? value_of_code(v[i] * inverse, integers) : 0;
      }
    });
  }
  Scratch<float> codes, factors;
};

// The factors of a weight's rows, one for each.
struct RowFactors {
  RowFactors(Cpu& cpu, const lk_tensor& scale, int64_t rows) : values(cpu, rows) {
    const auto* const given = static_cast<const float*>(scale.data);
    const bool per_row = present(scale) && numel(scale) > 1;
    for (int64_t i = 0; i < rows; ++i) values.data()[i] = given == nullptr ? 1.0f : given[per_row ? i : 0];
  }
  Scratch<float> values;
};

void code_product(Cpu& cpu, const WeightProduct& p, const float* wide, float beta, float* c) {
  const int64_t out = p.weight.dims[0], in = p.weight.dims[1], n = p.forward ? out : in, k = p.forward ? in : out;
  const FloatIn weight(cpu, p.weight);  // values of its codes
  const RowFactors of_weight(cpu, p.scale, out);
  const RowCodes a(cpu, p.products == LK_PRODUCTS_I8, wide, p.rows, k, p.forward ? nullptr : of_weight.values.data());
  const Scratch<float> sums(cpu, p.rows * n);
  gemm(cpu, p.rows, n, k, 1.0f, {a.codes.data(), k}, {weight, in, p.forward}, 0.0f, sums.data(), n);
  const float *const from = sums.data(), *const of_row = a.factors.data(), *const of_column = of_weight.values.data();
  const bool by_column = p.forward;
  parallel_for(cpu, p.rows, n, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        float& to = c[row * n + i];
        const float value = from[row * n + i] * of_row[row] * (by_column ? of_column[i] : 1.0f);
        to = beta == 0.0f ? value : value + beta * to;
      }
    }
  });
}

}  // namespace

void weight_product(Cpu& cpu, const WeightProduct& p, float beta, float* c) {
  const int64_t out = p.weight.dims[0], in = p.weight.dims[1], n = p.forward ? out : in, k = p.forward ? in : out;
  if (!present(p.scale) && multiply_in_bf16(p.a, p.weight)) {
    return bf16_gemm(cpu, p.rows, n, k, bf16_matrix(p.a, k), bf16_matrix(p.weight, in, p.forward), beta != 0.0f, c, n);
  }
  const FloatIn own(cpu, p.widened == nullptr ? p.a : lk_tensor{});
  const float* const a = p.widened == nullptr ? own : p.widened;
  if (p.products != LK_PRODUCTS_WIDE && p.rows > LK_FEW_ROWS) return code_product(cpu, p, a, beta, c);
  const FloatIn weight(cpu, p.weight, p.scale);
  gemm(cpu, p.rows, n, k, 1.0f, {a, k}, {weight, in, p.forward}, beta, c, n);
}

}  // namespace lk::cpu
