#include "cuda/await_previous.cuh"
#include "cuda/norm_slabs.cuh"

namespace lk::cuda {

namespace {

using namespace norm_slabs;

struct Problem {
  const uint16_t *x, *added;  // added: where it is by row
  In weight, factor, shift;
  float unit;
  int64_t columns, rows_per_factor;
  float eps;
  uint16_t* y;
  int64_t slabs;
};

constexpr int narrow = 384;  // threads of a block, three of which fit on a multiprocessor of capability 8.0
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int narrow_resident = 2;
#else
constexpr int narrow_resident = 3;
#endif

template <bool Bf16, bool Centered, bool ByRow, int Threads>
__global__ void __launch_bounds__(Threads, Threads == narrow ? narrow_resident : 2)
    norm_slabs_forward_kernel(Problem p) {
  await_previous();
  constexpr int tensors = ByRow ? 2 : 1;
  constexpr int values = Centered ? 2 : 1;  // squares around the mean, the next row's mean
  extern __shared__ uint4 places[];         // [group][ahead][x, added][threads]
  __shared__ Exchange<values> exchanges[most_groups];
  const GroupRows rows(p.slabs, p.rows_per_factor, p.columns);
  Exchange<values>& exchange = exchanges[rows.group];
  const int threads = rows.threads, row_size = tensors * threads;
  uint4* const mine = places + rows.group * ahead * row_size + rows.thread;
  uint4* const behind = mine + ahead * row_size;

  // Columns beyond the last and rows that are not there are 0.
  const uint16_t *const x = p.x + rows.block, *const added = p.added + rows.block;
  const auto fetch = [&](uint4* to, int at, bool there) {
    copy_16_async(to, x + at, there && rows.inside);
    if constexpr (ByRow) copy_16_async(to + threads, added + at, there && rows.inside);
    commit_copies();
  };
#pragma unroll
  for (int k = 0; k < ahead; ++k) fetch(mine + k * row_size, rows.first + k * rows.step, k < rows.count);
  float f[width] = {}, shift[width] = {};
  if (rows.inside) {
    float w[width];
    load_or(p.factor, rows.image * p.columns + rows.column, 0.0f, f);
    load_or(p.weight, rows.column, 1.0f, w);
    load_or(p.shift, rows.image * p.columns + rows.column, 0.0f, shift);
#pragma unroll
    for (int j = 0; j < width; ++j) f[j] = (p.unit + f[j]) * w[j];
  }
  exchange.clear(rows);
  const float per_column = 1.0f / static_cast<float>(rows.columns);

  float mean = 0;
  if constexpr (Centered) {
    wait_copies<ahead - 1>();
    float v[values] = {0, sum_of_four_lanes<Bf16>(*mine)};
    exchange.sum(v, 1, rows);
    mean = rows.inside ? v[1] * 0.25f * per_column : 0.0f;
  }

  uint4* slot = mine;
  uint16_t* const y = p.y + rows.block;
  int at = rows.first, turn = 0;
  for (int left = rows.count; left > 0; --left, turn ^= 1) {
    if constexpr (!Centered) wait_copies<ahead - 1>();
    float v[values] = {}, d[width];
    uint4 beside;
    unpack<Bf16>(*slot, d);
    if constexpr (ByRow) beside = slot[threads];
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if constexpr (Centered) d[j] -= mean;
      v[0] += d[j] * d[j];
    }
    uint4* const next = slot + row_size == behind ? mine : slot + row_size;
    fetch(slot, at + ahead * rows.step, left > ahead);  // this thread has read what lies there
    if constexpr (Centered) {
      wait_copies<ahead - 1>();
      v[1] = sum_of_four_lanes<Bf16>(*next);
    }
    exchange.sum(v, turn, rows);
    const float r = rsqrtf(v[0] * per_column + p.eps);
    if constexpr (ByRow) unpack<Bf16>(beside, shift);
#pragma unroll
    for (int j = 0; j < width; ++j) d[j] = d[j] * r * f[j] + shift[j];
    if (rows.inside) *reinterpret_cast<uint4*>(y + at) = packed<Bf16>(d);
    if constexpr (Centered) mean = rows.inside ? v[1] * 0.25f * per_column : 0.0f;
    at += rows.step;
    slot = next;
  }
}

using Kernel = void (*)(Problem);

template <bool Bf16, int Threads>
Kernel kernel_for(bool centered, bool by_row) {
  if (centered)
    return by_row ? norm_slabs_forward_kernel<Bf16, true, true, Threads>
                  : norm_slabs_forward_kernel<Bf16, true, false, Threads>;
  return by_row ? norm_slabs_forward_kernel<Bf16, false, true, Threads>
                : norm_slabs_forward_kernel<Bf16, false, false, Threads>;
}

template <int Threads>
Kernel kernel_for(const NormSlabs& norm, bool by_row) {
  return norm.x.dtype == LK_BF16 ? kernel_for<true, Threads>(norm.centered, by_row)
                                 : kernel_for<false, Threads>(norm.centered, by_row);
}

}  // namespace

void norm_slabs_forward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row, const lk_tensor& y) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1], rows = norm.rows_per_factor;
  const int64_t images = numel(norm.x) / columns / rows;
  const bool is_narrow = threads_for(columns) <= narrow;
  const Kernel kernel = is_narrow ? kernel_for<narrow>(norm, by_row) : kernel_for<most_threads>(norm, by_row);
  const Plan how = plan(cuda, reinterpret_cast<const void*>(kernel), is_narrow ? narrow : most_threads,
                        (by_row ? 2 : 1) * ahead, images, rows, columns);
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
