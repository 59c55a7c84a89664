// c [batch, m, n] = op(a) op(b): parallel over the batch when it feeds every thread, else inside each product.
#include "cpu/convert.h"
#include "cpu/gemm.h"

namespace lk::cpu {

void matmul(Cpu& cpu, const lk_matmul_params& p) {
  const int32_t rank = p.a.rank;
  const int64_t m = p.c.dims[rank - 2], n = p.c.dims[rank - 1], k = p.a.dims[rank - (p.transpose_a ? 2 : 1)];
  const int64_t batch = numel(p.c) / (m * n);
  const FloatIn a(cpu, p.a), b(cpu, p.b);
  const FloatOut c(cpu, p.c);
  const auto left = [&](int64_t i) { return Matrix{a + i * m * k, p.a.dims[rank - 1], p.transpose_a != 0}; };
  const auto right = [&](int64_t i) { return Matrix{b + i * k * n, p.b.dims[rank - 1], p.transpose_b != 0}; };
  if (batch < cpu.threads()) {
    for (int64_t i = 0; i < batch; ++i) gemm(cpu, m, n, k, 1.0f, left(i), right(i), 0.0f, c + i * m * n, n);
    return;
  }
  parallel_for(cpu, batch, m * n * std::max<int64_t>(1, k / 4), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gemm_alone(m, n, k, 1.0f, left(i), right(i), 0.0f, c + i * m * n, n);
  });
}

}  // namespace lk::cpu
