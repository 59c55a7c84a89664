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
  Out y;
};

template <bool Bf16, bool Centered, bool ByRow>
__global__ void __launch_bounds__(most_threads, 2) norm_slabs_forward_kernel(Problem p, Slabs slabs) {
  await_previous();
  constexpr int parts = 2, tensors = ByRow ? 2 : 1;          // of a row's sums: mean, squares
  extern __shared__ uint4 ring[];                            // [ahead][x, added][packs][threads]
  __shared__ float exchange[2][at_once][parts][most_warps];  // pairs of rows take turns: one barrier each
  __shared__ float counts[most_warps];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / 32, lane = thread % 32, other = lane % most_warps;
  const int64_t image = blockIdx.x / slabs.count, slab = blockIdx.x % slabs.count;
  const int64_t begin = image * p.rows_per_factor + slab * slabs.rows;
  const int64_t end = min(begin + slabs.rows, (image + 1) * p.rows_per_factor);

  ColumnsOfRows<tensors> rows(ring, begin, end, p.columns);
  rows.from[0] = p.x;
  if constexpr (ByRow) rows.from[1] = p.added;
  for (int i = 0; i < ahead; ++i) rows.fetch(begin + i);

  float f[packs][width], shift[packs][width];
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!rows.inside[k]) continue;
    float w[width];
    load_or(p.factor, image * p.columns + rows.column[k], 0.0f, f[k]);
    load_or(p.weight, rows.column[k], 1.0f, w);
    load_or(p.shift, image * p.columns + rows.column[k], 0.0f, shift[k]);
#pragma unroll
    for (int j = 0; j < width; ++j) f[k][j] = (p.unit + f[k][j]) * w[j];
  }
  for (int i = thread; i < 2 * at_once * parts * most_warps; i += threads) (&exchange[0][0][0][0])[i] = 0;
  const Counts numbers = count_numbers(rows.count, other, counts);  // and its barrier for what was set to 0
  const float per_count = 1.0f / fmaxf(numbers.mine, 1.0f), per_column = 1.0f / static_cast<float>(p.columns);

  int turn = 0;
  for (int64_t first = begin; first < end; first += at_once, turn ^= 1) {
    wait_copies<ahead - at_once>();
    uint4 x[at_once][packs], added[at_once][packs];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        x[i][k] = make_uint4(0, 0, 0, 0);
        if (!rows.inside[k] || first + i >= end) continue;
        x[i][k] = rows.at(first + i, 0, k);
        if constexpr (ByRow) added[i][k] = rows.at(first + i, 1, k);
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      float v[width], mean = 0, squares = 0;
      if constexpr (Centered) {
#pragma unroll
        for (int k = 0; k < packs; ++k) {
          unpack<Bf16>(x[i][k], v);
          mean += pairwise_sum(v);
        }
        mean = warp_sum(mean) * per_count;
      }
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        if (!rows.inside[k]) continue;
        unpack<Bf16>(x[i][k], v);
#pragma unroll
        for (int j = 0; j < width; ++j) squares += (v[j] - mean) * (v[j] - mean);
      }
      squares = warp_sum(squares);
      if (lane == 0) {
        exchange[turn][i][0][warp] = mean;
        exchange[turn][i][1][warp] = squares;
      }
    }
    __syncthreads();
    for (int i = 0; i < at_once; ++i) rows.fetch(first + ahead + i);  // all have read what lay there
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int64_t row = first + i;
      if (row >= end) break;
      float mean = 0, squares = exchange[turn][i][1][other];
      if constexpr (Centered) {
        const float of_other = exchange[turn][i][0][other];
        mean = warps_sum(numbers.of_other * of_other) * per_column;
        squares += numbers.of_other * (of_other - mean) * (of_other - mean);
      }
      const float r = 1.0f / sqrtf(warps_sum(squares) * per_column + p.eps);
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        if (!rows.inside[k]) continue;
        float v[width];
        unpack<Bf16>(x[i][k], v);
        if constexpr (ByRow) unpack<Bf16>(added[i][k], shift[k]);
#pragma unroll
        for (int j = 0; j < width; ++j) v[j] = (v[j] - mean) * r * f[k][j] + shift[k][j];
        put(p.y, row * p.columns + rows.column[k], v);
      }
    }
  }
}

using Kernel = void (*)(Problem, Slabs);

template <bool Bf16>
Kernel kernel_for(bool centered, bool by_row) {
  if (centered)
    return by_row ? norm_slabs_forward_kernel<Bf16, true, true> : norm_slabs_forward_kernel<Bf16, true, false>;
  return by_row ? norm_slabs_forward_kernel<Bf16, false, true> : norm_slabs_forward_kernel<Bf16, false, false>;
}

}  // namespace

void norm_slabs_forward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& added, bool by_row, const lk_tensor& y) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1], rows = norm.rows_per_factor;
  const int64_t images = numel(norm.x) / columns / rows;
  const unsigned threads = threads_for(columns);
  const size_t shared = sizeof(uint4) * ahead * (by_row ? 2 : 1) * packs * threads;
  const Kernel kernel =
      norm.x.dtype == LK_BF16 ? kernel_for<true>(norm.centered, by_row) : kernel_for<false>(norm.centered, by_row);
  const Slabs slabs = plan(cuda, reinterpret_cast<const void*>(kernel), threads, shared, images, rows);
  const Problem problem{static_cast<const uint16_t*>(norm.x.data),
                        by_row ? static_cast<const uint16_t*>(added.data) : nullptr,
                        in(norm.weight),
                        in(norm.factor),
                        by_row ? In{} : in(added),
                        norm.unit,
                        columns,
                        rows,
                        norm.eps,
                        out(y)};
  cuda.launch(kernel, dim3(static_cast<unsigned>(images * slabs.count)), threads, shared, problem, slabs);
}

}  // namespace lk::cuda
