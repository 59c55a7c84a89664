// With g = dy weight (unit + factor) and r = 1 / sqrt(..):  dx = r (g - mean(g) - xh mean(g xh)), the mean of g only
// where x's is taken off.
#include "cuda/await_previous.cuh"
#include "cuda/norm_slabs.cuh"

namespace lk::cuda {

namespace {

using namespace norm_slabs;

struct Problem {
  const uint16_t *x, *dy, *added;
  In weight, factor;
  float unit;
  int64_t columns, rows_per_factor;
  float eps;
  Out dx;
};

struct Moments {
  float mean, r, mean_g, mean_gxh;
};

template <bool Bf16, bool Centered, bool Summed, bool Onto>
__global__ void __launch_bounds__(most_threads, 2) norm_slabs_kernel(Problem p, Slabs slabs, Sums partial) {
  await_previous();
  constexpr int parts = 4;  // of a row's sums: mean, squares, g, g d
  constexpr int tensors = Onto ? 3 : 2;
  extern __shared__ uint4 ring[];                            // [ahead][x, dy, added][packs][threads]
  __shared__ float exchange[2][at_once][parts][most_warps];  // pairs of rows take turns: one barrier each
  __shared__ float counts[most_warps];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int warp = thread / 32, lane = thread % 32, other = lane % most_warps;
  const int64_t image = blockIdx.x / slabs.count, slab = blockIdx.x % slabs.count;
  const int64_t begin = image * p.rows_per_factor + slab * slabs.rows;
  const int64_t end = min(begin + slabs.rows, (image + 1) * p.rows_per_factor);

  ColumnsOfRows<tensors> rows(ring, begin, end, p.columns);
  rows.from[0] = p.x;
  rows.from[1] = p.dy;
  if constexpr (Onto) rows.from[2] = p.added;
  for (int i = 0; i < ahead; ++i) rows.fetch(begin + i);

  float f[packs][width], total[packs][width] = {}, shift[packs][width] = {};
#pragma unroll
  for (int k = 0; k < packs; ++k) {
    if (!rows.inside[k]) continue;
    float w[width];
    load_or(p.factor, image * p.columns + rows.column[k], 0.0f, f[k]);
    load_or(p.weight, rows.column[k], 1.0f, w);
#pragma unroll
    for (int j = 0; j < width; ++j) f[k][j] = (p.unit + f[k][j]) * w[j];
  }
  for (int i = thread; i < 2 * at_once * parts * most_warps; i += threads) (&exchange[0][0][0][0])[i] = 0;
  const Counts numbers = count_numbers(rows.count, other, counts);  // and its barrier for what was set to 0
  const float count_other = numbers.of_other, per_count = 1.0f / fmaxf(numbers.mine, 1.0f);
  const float per_column = 1.0f / static_cast<float>(p.columns);

  int turn = 0;
  for (int64_t first = begin; first < end; first += at_once, turn ^= 1) {
    wait_copies<ahead - at_once>();
    uint4 x[at_once][packs], dy[at_once][packs];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        x[i][k] = dy[i][k] = make_uint4(0, 0, 0, 0);
        if (!rows.inside[k] || first + i >= end) continue;
        x[i][k] = rows.at(first + i, 0, k);
        dy[i][k] = rows.at(first + i, 1, k);
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      float v[width], g[width], mean = 0, squares = 0, sum_g = 0, sum_gd = 0;  // d = x - mean
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
        unpack<Bf16>(dy[i][k], g);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const float d = v[j] - mean, scaled = g[j] * f[k][j];
          squares += d * d;
          if constexpr (Centered) sum_g += scaled;
          sum_gd += scaled * d;
        }
      }
      squares = warp_sum(squares);
      if constexpr (Centered) sum_g = warp_sum(sum_g);
      sum_gd = warp_sum(sum_gd);
      if (lane == 0) {
        const float mine[parts] = {mean, squares, sum_g, sum_gd};
#pragma unroll
        for (int s = 0; s < parts; ++s) exchange[turn][i][s][warp] = mine[s];
      }
    }
    __syncthreads();
    if constexpr (!Onto)  // this thread has read what lies there
      for (int i = 0; i < at_once; ++i) rows.fetch(first + ahead + i);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int64_t row = first + i;
      if (row >= end) break;
      const auto& of = exchange[turn][i];
      Moments m{};
      float squares = of[1][other], sum_gd = of[3][other];
      if constexpr (Centered) {
        const float mean = of[0][other], sum_g = of[2][other];
        m.mean = warps_sum(count_other * mean) * per_column;
        const float off = mean - m.mean;
        squares += count_other * off * off;
        sum_gd += sum_g * off;
        m.mean_g = warps_sum(sum_g) * per_column;
      }
      m.r = 1.0f / sqrtf(warps_sum(squares) * per_column + p.eps);
      m.mean_gxh = warps_sum(sum_gd) * m.r * per_column;
#pragma unroll
      for (int k = 0; k < packs; ++k) {
        if (!rows.inside[k]) continue;
        float v[width], g[width];
        unpack<Bf16>(x[i][k], v);
        unpack<Bf16>(dy[i][k], g);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const float xh = (v[j] - m.mean) * m.r;
          if constexpr (Summed) {
            total[k][j] += g[j] * xh;
            if constexpr (Centered) shift[k][j] += g[j];
          }
          g[j] = m.r * (g[j] * f[k][j] - m.mean_g - xh * m.mean_gxh);
        }
        if constexpr (Onto) {
          unpack<Bf16>(rows.at(row, 2, k), v);
#pragma unroll
          for (int j = 0; j < width; ++j) g[j] += v[j];
        }
        if (p.dx.data != nullptr) put(p.dx, row * p.columns + rows.column[k], g);
      }
    }
    if constexpr (Onto)
      for (int i = 0; i < at_once; ++i) rows.fetch(first + ahead + i);
  }
  if constexpr (Summed) {
    const int64_t images = gridDim.x / slabs.count, at = (slab * images + image) * p.columns;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      if (!rows.inside[k]) continue;
      float w[width];
      load_or(p.weight, rows.column[k], 1.0f, w);
#pragma unroll
      for (int j = 0; j < width; ++j) total[k][j] *= w[j];
      put(partial.y[0], at + rows.column[k], total[k]);
      if (Centered && partial.y[1].data != nullptr) put(partial.y[1], at + rows.column[k], shift[k]);
    }
  }
}

using Kernel = void (*)(Problem, Slabs, Sums);

template <bool Bf16, bool Centered>
Kernel kernel_for(bool summed, bool onto) {
  if (onto)
    return summed ? norm_slabs_kernel<Bf16, Centered, true, true> : norm_slabs_kernel<Bf16, Centered, false, true>;
  return summed ? norm_slabs_kernel<Bf16, Centered, true, false> : norm_slabs_kernel<Bf16, Centered, false, false>;
}

Kernel kernel_for(const NormSlabs& norm, bool summed, bool onto) {
  if (norm.x.dtype == LK_BF16)
    return norm.centered ? kernel_for<true, true>(summed, onto) : kernel_for<true, false>(summed, onto);
  return norm.centered ? kernel_for<false, true>(summed, onto) : kernel_for<false, false>(summed, onto);
}

}  // namespace

bool norm_slabs_fit(const Cuda& cuda, const NormSlabs& norm, std::initializer_list<const lk_tensor*> rows,
                    std::initializer_list<const lk_tensor*> others) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1], per_thread = packs * width;
  if (cuda.capability() < 80 || norm.x.dtype == LK_F32) return false;
  if (columns % width != 0 || columns <= 32 * per_thread || columns > most_threads * per_thread) return false;
  bool packed = aligned(norm.x, columns) && aligned(norm.weight, columns) && aligned(norm.factor, columns);
  for (const lk_tensor* const t : rows) {
    if (present(*t) && t->dtype != norm.x.dtype) return false;
    packed = packed && aligned(*t, columns);
  }
  for (const lk_tensor* const t : others) packed = packed && aligned(*t, columns);
  return packed || cuda.measuring();
}

void norm_slabs_backward(Cuda& cuda, const NormSlabs& norm, const lk_tensor& dy, const lk_tensor& added,
                         const lk_tensor& dx, const Sums& sums) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1], rows = norm.rows_per_factor;
  const int64_t images = numel(norm.x) / columns / rows, count = images * columns;
  const bool summed = sums.y[0].data != nullptr || sums.y[1].data != nullptr;
  const unsigned threads = threads_for(columns);
  const bool onto = present(added);
  const size_t shared = sizeof(uint4) * ahead * (onto ? 3 : 2) * packs * threads;
  const Kernel kernel = kernel_for(norm, summed, onto);
  const Slabs slabs = plan(cuda, reinterpret_cast<const void*>(kernel), threads, shared, images, rows);
  Sums partial{};
  float* const scratch = summed ? cuda.scratch<float>(2 * slabs.count * count) : nullptr;
  if (summed) partial.y[0] = {scratch, LK_F32};
  if (sums.y[1].data != nullptr) partial.y[1] = {scratch + slabs.count * count, LK_F32};
  const Problem problem{static_cast<const uint16_t*>(norm.x.data),
                        static_cast<const uint16_t*>(dy.data),
                        static_cast<const uint16_t*>(added.data),
                        in(norm.weight),
                        in(norm.factor),
                        norm.unit,
                        columns,
                        rows,
                        norm.eps,
                        out(dx)};
  cuda.launch(kernel, dim3(static_cast<unsigned>(images * slabs.count)), threads, shared, problem, slabs, partial);
  if (summed) add_slabs(cuda, scratch, 2, slabs.count, count, sums, 1.0f);
}

}  // namespace lk::cuda
