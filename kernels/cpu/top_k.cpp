// The k largest of each row: a partial sort of the places.
#include <cmath>
#include <cstring>
#include <numeric>

#include "cpu/convert.h"

namespace lk::cpu {

void top_k(Cpu& cpu, const lk_top_k_params& p) {
  const int64_t size = last_dim(p.x), k = last_dim(p.values), rows = numel(p.x) / size;
  const FloatIn x(cpu, p.x);
  const FloatOut values(cpu, p.values);
  auto* const index = static_cast<int32_t*>(p.index.data);
  const Scratch<int32_t> places(cpu, cpu.threads() * size);
  parallel_tasks(cpu, rows, [&](int64_t row, int64_t slot) {
    const float* const from = x + row * size;
    int32_t* const order = places.data() + slot * size;
    std::iota(order, order + size, 0);
    std::partial_sort(order, order + k, order + size, [from](int32_t a, int32_t b) {
      const float l = from[a], r = from[b];
      if (std::isnan(l) || std::isnan(r)) return std::isnan(l) == std::isnan(r) ? a < b : std::isnan(l);
      return l > r || (l == r && a < b);
    });
    for (int64_t i = 0; i < k; ++i) {
      index[row * k + i] = order[i];
      values[row * k + i] = from[order[i]];
    }
  });
}

void top_k_backward(Cpu& cpu, const lk_top_k_backward_params& p) {
  const int64_t size = last_dim(p.dx), k = last_dim(p.index), count = numel(p.index);
  const FloatIn dvalues(cpu, p.dvalues);
  const FloatOut dx(cpu, p.dx);
  const auto* const index = static_cast<const int32_t*>(p.index.data);
  std::memset(dx.data(), 0, static_cast<size_t>(numel(p.dx)) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= size) {
      throw Error(LK_E_INVALID, "top_k_backward: index[" + std::to_string(i) + "]: expected 0 to " +
                                    std::to_string(size - 1) + ", found " + std::to_string(index[i]));
    }
    dx[i / k * size + index[i]] = dvalues[i];
  }
}

}  // namespace lk::cpu
