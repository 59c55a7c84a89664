// c [batch, m, n] = op(a) op(b): parallel over the batch when it feeds every thread, else inside each product. Of a
// matrix that all batches have the stride is 0; what is summed over them is added up in their order.
#include "cpu/convert.h"
#include "cpu/gemm.h"

namespace lk::cpu {

void matmul(Cpu& cpu, const lk_matmul_params& p) {
  const int32_t rank = p.a.rank;
  int64_t m = p.c.dims[rank - 2], n = p.c.dims[rank - 1], k = p.a.dims[rank - (p.transpose_a ? 2 : 1)];
  int64_t batch = std::max(numel(p.a) / (m * k), numel(p.b) / (k * n));
  const bool sum = numel(p.c) == m * n && batch > 1;
  if (numel(p.b) == k * n && !p.transpose_a && !sum) {  // one tall matrix times b
    m *= batch;
    batch = 1;
  }
  const int64_t stride_a = numel(p.a) == m * k ? 0 : m * k, stride_b = numel(p.b) == k * n ? 0 : k * n;
  const FloatIn a(cpu, p.a), b(cpu, p.b);
  const FloatOut c(cpu, p.c);
  const auto left = [&](int64_t i) { return Matrix{a + i * stride_a, p.a.dims[rank - 1], p.transpose_a != 0}; };
  const auto right = [&](int64_t i) { return Matrix{b + i * stride_b, p.b.dims[rank - 1], p.transpose_b != 0}; };
  if (sum) {
    for (int64_t i = 0; i < batch; ++i) gemm(cpu, m, n, k, 1.0f, left(i), right(i), i == 0 ? 0.0f : 1.0f, c, n);
    return;
  }
  if (batch < cpu.threads()) {
    for (int64_t i = 0; i < batch; ++i) gemm(cpu, m, n, k, 1.0f, left(i), right(i), 0.0f, c + i * m * n, n);
    return;
  }
  parallel_for(cpu, batch, m * n * std::max<int64_t>(1, k / 4), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) gemm_alone(m, n, k, 1.0f, left(i), right(i), 0.0f, c + i * m * n, n);
  });
}

}  // namespace lk::cpu
