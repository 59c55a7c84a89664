// The means of the next two rows are summed with the squares of these two, so that the variance is around the mean
// itself and a group passes one barrier for two rows (norm_groups.cuh).
#include "cuda/await_previous.cuh"
#include "cuda/norm_groups.cuh"
#include "cuda/norm_slabs.cuh"

namespace lk::cuda {

namespace {

using namespace norm_groups;

constexpr int block_limit = 384;  // threads of several groups

struct Problem {
  const uint16_t *x, *added;  // added: where it is by row
  In weight, factor, shift;
  float unit;
  int64_t columns, rows_per_factor;
  float eps;
  uint16_t* y;
  int64_t slabs;
};

template <bool Bf16, bool Centered, bool ByRow>
__global__ void __launch_bounds__(most_threads, 2) norm_slabs_forward_kernel(Problem p) {
  await_previous();
  constexpr int tensors = ByRow ? 2 : 1;
  constexpr int values = (Centered ? 2 : 1) * at_once;  // squares around the mean, the next rows' means
  extern __shared__ uint4 places[];                     // [group][ahead][x, added][at_once][threads]
  __shared__ Exchange<values> exchanges[most_groups];
  const GroupRows rows(p.slabs, p.rows_per_factor, p.columns);
  Exchange<values>& exchange = exchanges[rows.group];
  const int threads = rows.threads, pair_size = tensors * at_once * threads;
  uint4* const mine = places + rows.group * ahead * pair_size + rows.thread;
  uint4* const behind = mine + ahead * pair_size;

  const uint16_t *const x = p.x + rows.block, *const added = p.added + rows.block;
  const auto fetch = [&](uint4* to, int at, int left) {
    rows.fetch(to, x, at, left);
    if constexpr (ByRow) rows.fetch(to + at_once * threads, added, at, left);
    commit_copies();
  };
#pragma unroll
  for (int k = 0; k < ahead; ++k)
    fetch(mine + k * pair_size, rows.first + k * at_once * rows.step, rows.count - k * at_once);
  float f[width] = {}, shift[width] = {};
  if (rows.inside) {
    float w[width];
    load_or(p.factor, rows.image * p.columns + rows.column, 0.0f, f);
    load_or(p.weight, rows.column, 1.0f, w);
    load_or(p.shift, rows.image * p.columns + rows.column, 0.0f, shift);
#pragma unroll
    for (int j = 0; j < width; ++j) f[j] = (p.unit + f[j]) * w[j];
  }
  exchange.clear(rows.thread, threads);
  asm volatile("bar.sync %0, %1;" ::"r"(rows.group + 1), "r"(threads) : "memory");
  const float per_column = 1.0f / static_cast<float>(rows.columns);

  // v[at_once ..] = a thread's sums of two rows.
  [[maybe_unused]] const auto sum_rows = [&](const uint4* from, float(&v)[values]) {
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      float a[width];
      unpack<Bf16>(from[i * threads], a);
      v[at_once + i] = pairwise_sum(a);
    }
  };
  float mean[at_once] = {};
  if constexpr (Centered) {
    wait_copies<ahead - 1>();
    float v[values] = {};
    sum_rows(mine, v);
    exchange.sum(v, 1, rows.group, threads, rows.warp, rows.lane);
#pragma unroll
    for (int i = 0; i < at_once; ++i) mean[i] = rows.inside ? v[at_once + i] * per_column : 0.0f;
  }

  uint4* slot = mine;
  uint16_t* const y = p.y + rows.block;
  int at = rows.first, turn = 0;
  for (int left = rows.count; left > 0; left -= at_once, turn ^= 1) {
    if constexpr (!Centered) wait_copies<ahead - 1>();
    float v[values] = {}, d[at_once][width];
    uint4 beside[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      unpack<Bf16>(slot[i * threads], d[i]);
      if constexpr (ByRow) beside[i] = slot[(at_once + i) * threads];
#pragma unroll
      for (int j = 0; j < width; ++j) {
        if constexpr (Centered) d[i][j] -= mean[i];
        v[i] += d[i][j] * d[i][j];
      }
    }
    uint4* const next = slot + pair_size == behind ? mine : slot + pair_size;
    // This thread has read what lies there.
    fetch(slot, at + ahead * at_once * rows.step, left - ahead * at_once);
    if constexpr (Centered) {
      wait_copies<ahead - 1>();
      sum_rows(next, v);
    }
    exchange.sum(v, turn, rows.group, threads, rows.warp, rows.lane);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const float r = rsqrtf(v[i] * per_column + p.eps);
      if constexpr (ByRow) unpack<Bf16>(beside[i], shift);
#pragma unroll
      for (int j = 0; j < width; ++j) d[i][j] = d[i][j] * r * f[j] + shift[j];
      if (rows.inside && left > i) *reinterpret_cast<uint4*>(y + at + i * rows.step) = packed<Bf16>(d[i]);
      if constexpr (Centered) mean[i] = rows.inside ? v[at_once + i] * per_column : 0.0f;
    }
    at += at_once * rows.step;
    slot = next;
  }
}

using Kernel = void (*)(Problem);

template <bool Bf16>
Kernel kernel_for(bool centered, bool by_row) {
  if (centered)
    return by_row ? norm_slabs_forward_kernel<Bf16, true, true> : norm_slabs_forward_kernel<Bf16, true, false>;
  return by_row ? norm_slabs_forward_kernel<Bf16, false, true> : norm_slabs_forward_kernel<Bf16, false, false>;
}

}  // namespace

bool norm_slabs_forward_fit(const Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row,
                            const lk_tensor& y) {
  const lk_tensor beside = by_row ? added : lk_tensor{};
  return fits(cuda, by_row ? 2 : 1, norm.rows_per_factor, norm.x.dims[norm.x.rank - 1]) &&
         norm_slabs_fit(cuda, norm, {&beside, &y}, {&added});
}

void norm_slabs_forward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row, const lk_tensor& y) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1], rows = norm.rows_per_factor;
  const int64_t images = numel(norm.x) / columns / rows;
  const Kernel kernel =
      norm.x.dtype == LK_BF16 ? kernel_for<true>(norm.centered, by_row) : kernel_for<false>(norm.centered, by_row);
  const Plan how =
      plan(cuda, reinterpret_cast<const void*>(kernel), block_limit, by_row ? 2 : 1, images, rows, columns);
  const Problem problem{static_cast<const uint16_t*>(norm.x.data),
                        by_row ? static_cast<const uint16_t*>(added.data) : nullptr,
                        in(norm.weight),
                        in(norm.factor),
                        by_row ? In{} : in(added),
                        norm.unit,
                        columns,
                        rows,
                        norm.eps,
                        static_cast<uint16_t*>(y.data),
                        how.slabs};
  cuda.launch(kernel, how.grid, how.block, how.shared, problem);
}

}  // namespace lk::cuda
