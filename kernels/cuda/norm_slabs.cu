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
  uint16_t* dx;  // optional
  int64_t slabs;
};

// Of dy xh and of dy, the latter as the matrix instruction has them.
struct ColumnSums {
  float product[width] = {};
  float plain[2][4] = {};
};

// Adds the sums of the block's groups to those of its first, in their order. `room`: 4 for each thread.
__device__ inline void add_groups(float4* room, const GroupRows& rows, ColumnSums& sums) {
  if (rows.groups == 1) return;
  float4* const mine = room + rows.group * 4 * rows.threads + rows.thread;
  const auto each_four = [&](const auto& body) {
    body(0, sums.product[0], sums.product[1], sums.product[2], sums.product[3]);
    body(1, sums.product[4], sums.product[5], sums.product[6], sums.product[7]);
#pragma unroll
    for (int k = 0; k < 2; ++k) body(2 + k, sums.plain[k][0], sums.plain[k][1], sums.plain[k][2], sums.plain[k][3]);
  };
  __syncthreads();
  if (rows.group > 0)
    each_four([&](int q, float a, float b, float c, float d) { mine[q * rows.threads] = make_float4(a, b, c, d); });
  __syncthreads();
  if (rows.group > 0) return;
  for (int other = 1; other < rows.groups; ++other)
    each_four([&](int q, float& a, float& b, float& c, float& d) {
      const float4 four = mine[(other * 4 + q) * rows.threads];
      a += four.x, b += four.y, c += four.z, d += four.w;
    });
}

// Threads of a block, which bound the registers: the sums take sixteen of them.
template <bool Summed>
constexpr int block_limit = Summed ? 768 : most_threads;

template <bool Bf16, bool Centered, bool Summed, bool Onto>
__global__ void __launch_bounds__(block_limit<Summed>, Summed ? 1 : 2) norm_slabs_kernel(Problem p, Sums partial) {
  await_previous();
  constexpr int tensors = Onto ? 3 : 2, copies = Onto ? 2 : 1;  // copies: groups of them for a row
  constexpr int values = Centered ? 4 : 2;  // squares, g d, and g, the next row's mean; d = x - mean
  extern __shared__ uint4 places[];         // [group][ahead][x, dy, added][threads]
  __shared__ Exchange<values> exchanges[most_groups];
  const GroupRows rows(p.slabs, p.rows_per_factor, p.columns);
  Exchange<values>& exchange = exchanges[rows.group];
  const int threads = rows.threads, row_size = tensors * threads;
  uint4* const mine = places + rows.group * ahead * row_size + rows.thread;
  uint4* const behind = mine + ahead * row_size;

  // Columns beyond the last and rows that are not there are 0.
  const uint16_t *const x = p.x + rows.block, *const dy = p.dy + rows.block, *const added = p.added + rows.block;
  const auto fetch = [&](uint4* to, int at, bool there) {
    copy_16_async(to, x + at, there && rows.inside);
    copy_16_async(to + threads, dy + at, there && rows.inside);
    commit_copies();
  };
  const auto fetch_added = [&](uint4* to, int at, bool there) {
    copy_16_async(to + 2 * threads, added + at, there && rows.inside);
    commit_copies();
  };
#pragma unroll
  for (int k = 0; k < ahead; ++k) {
    fetch(mine + k * row_size, rows.first + k * rows.step, k < rows.count);
    if constexpr (Onto) fetch_added(mine + k * row_size, rows.first + k * rows.step, k < rows.count);
  }
  float f[width] = {};
  if (rows.inside) {
    float w[width];
    load_or(p.factor, rows.image * p.columns + rows.column, 0.0f, f);
    load_or(p.weight, rows.column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < width; ++j) f[j] = (p.unit + f[j]) * w[j];
  }
  exchange.clear(rows);
  const float per_column = 1.0f / static_cast<float>(rows.columns);
  const Adder<Bf16> adder(rows.lane);
  ColumnSums sums;

  float mean = 0;
  if constexpr (Centered) {
    wait_copies<copies * ahead - 1>();
    float v[values] = {0, 0, 0, sum_of_four_lanes<Bf16>(*mine)};
    exchange.sum(v, 1, rows);
    mean = rows.inside ? v[3] * 0.25f * per_column : 0.0f;
  }

  uint4* slot = mine;
  uint16_t* const dx = p.dx + rows.block;
  int at = rows.first, turn = 0;
  for (int left = rows.count; left > 0; --left, turn ^= 1) {
    if constexpr (!Centered) wait_copies<copies*(ahead - 1)>();
    float v[values] = {}, d[width], g[width];
    const uint4 gradient = slot[threads];
    unpack<Bf16>(*slot, d);
    unpack<Bf16>(gradient, g);
    if constexpr (Summed && Centered) adder.add(gradient, sums.plain);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if constexpr (Centered) d[j] -= mean;
      const float scaled = g[j] * f[j];
      v[0] += d[j] * d[j];
      v[1] += scaled * d[j];
      if constexpr (Centered) v[2] += scaled;
    }
    uint4* const next = slot + row_size == behind ? mine : slot + row_size;
    fetch(slot, at + ahead * rows.step, left > ahead);  // this thread has read what lies there
    if constexpr (Centered) {
      wait_copies<copies*(ahead - 1)>();
      v[3] = sum_of_four_lanes<Bf16>(*next);
    }
    exchange.sum(v, turn, rows);
    const float r = rsqrtf(v[0] * per_column + p.eps);
    // dx = r (g - mean(g)) - d r^3 mean(g d)
    const float back = v[1] * per_column * r * r * r, mean_g = Centered ? v[2] * per_column * r : 0.0f;
    float onto[width] = {};
    if constexpr (Onto) unpack<Bf16>(slot[2 * threads], onto);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      g[j] *= r;
      if constexpr (Summed) sums.product[j] += g[j] * d[j];
      g[j] = g[j] * f[j] - (d[j] * back + mean_g);
      if constexpr (Onto) g[j] += onto[j];
    }
    if (p.dx != nullptr && rows.inside) *reinterpret_cast<uint4*>(dx + at) = packed<Bf16>(g);
    if constexpr (Centered) mean = rows.inside ? v[3] * 0.25f * per_column : 0.0f;
    if constexpr (Onto) fetch_added(slot, at + ahead * rows.step, left > ahead);
    at += rows.step;
    slot = next;
  }
  if constexpr (Summed) {
    wait_copies<0>();
    add_groups(reinterpret_cast<float4*>(places), rows, sums);
    if (rows.group > 0 || !rows.inside) return;
    const int64_t images = gridDim.x / p.slabs, slab = blockIdx.x % p.slabs;
    const int64_t to = (slab * images + rows.image) * p.columns + rows.column;
    float w[width], plain[width];
    load_or(p.weight, rows.column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      sums.product[j] *= w[j];
      plain[j] = sums.plain[j / 4][j % 4];
    }
    put(partial.y[0], to, sums.product);
    if (Centered && partial.y[1].data != nullptr) put(partial.y[1], to, plain);
  }
}

using Kernel = void (*)(Problem, Sums);

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
  constexpr int64_t most_places = int64_t{1} << 30;  // of an image: they are counted in 32 bits
  const int64_t columns = norm.x.dims[norm.x.rank - 1];
  if (cuda.capability() < 80 || norm.x.dtype == LK_F32) return false;
  if (columns % width != 0 || columns <= 64 * width || columns > most_threads * width) return false;
  if (norm.rows_per_factor * columns > most_places) return false;
  if (static_cast<int64_t>(sizeof(uint4)) * 3 * ahead * threads_for(columns) > shared_room(cuda)) return false;
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
  const bool onto = present(added);
  const Kernel kernel = kernel_for(norm, summed, onto);
  const Plan how = plan(cuda, reinterpret_cast<const void*>(kernel), summed ? block_limit<true> : block_limit<false>,
                        (onto ? 3 : 2) * ahead, images, rows, columns);
  Sums partial{};
  float* const scratch = summed ? cuda.scratch<float>(2 * how.slabs * count) : nullptr;
  if (summed) partial.y[0] = {scratch, LK_F32};
  if (sums.y[1].data != nullptr) partial.y[1] = {scratch + how.slabs * count, LK_F32};
  const Problem problem{static_cast<const uint16_t*>(norm.x.data),
                        static_cast<const uint16_t*>(dy.data),
                        static_cast<const uint16_t*>(added.data),
                        in(norm.weight),
                        in(norm.factor),
                        norm.unit,
                        columns,
                        rows,
                        norm.eps,
                        static_cast<uint16_t*>(dx.data),
                        how.slabs};
  cuda.launch(kernel, how.grid, how.block, how.shared, problem, partial);
  if (summed) add_slabs(cuda, scratch, 2, how.slabs, count, sums, 1.0f);
}

}  // namespace lk::cuda
