// With g = dy weight (unit + factor) and r = 1 / sqrt(..):  dx = r (g - mean(g) - xh mean(g xh)), the mean of g only
// where x's is taken off.
#include "cuda/await_previous.cuh"
#include "cuda/norm_slabs.cuh"

namespace lk::cuda {

namespace {

using namespace norm_slabs_parts;

struct Problem {
  const uint16_t *x, *dy, *added;
  In weight, factor;
  float unit;
  int columns, rows_per_factor;
  float eps;
  uint16_t* dx;  // optional
  int slabs;     // of an image
};

constexpr int usual_warps = 12;            // of a block
constexpr int64_t on_the_way = 80 * 1024;  // bytes of a block: with more of them memory gets slower

// Of dy xh and of dy, the latter as the matrix instruction has them.
struct ColumnSums {
  float product[chunks][width] = {};
  float plain[chunks][2][4] = {};
};

// Adds the sums of the block's groups to those of its first, in their order. `room`: 4 for each chunk of a thread of
// the others.
__device__ inline void add_groups(float4* room, const GroupRows& rows, ColumnSums& sums) {
  if (rows.groups == 1) return;
  float4* const mine = room + (rows.group - 1) * 4 * chunks * rows.threads + rows.thread;
  const auto each_four = [&](const auto& body) {
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      float(&v)[width] = sums.product[c];
      body(4 * c, v[0], v[1], v[2], v[3]);
      body(4 * c + 1, v[4], v[5], v[6], v[7]);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float(&w)[4] = sums.plain[c][k];
        body(4 * c + 2 + k, w[0], w[1], w[2], w[3]);
      }
    }
  };
  __syncthreads();
  if (rows.group > 0)
    each_four([&](int q, float a, float b, float c, float d) { mine[q * rows.threads] = make_float4(a, b, c, d); });
  __syncthreads();
  if (rows.group > 0) return;
  for (int other = 1; other < rows.groups; ++other)
    each_four([&](int q, float& a, float& b, float& c, float& d) {
      const float4 four = mine[(other * 4 * chunks + q) * rows.threads];
      a += four.x, b += four.y, c += four.z, d += four.w;
    });
}

// `ahead` rows of a group have a place.
template <bool Bf16, bool Centered, bool Onto, int ahead>
__global__ void __launch_bounds__(most_threads, 1) norm_slabs_kernel(Problem p, Sums partial) {
  await_previous();
  constexpr int tensors = Onto ? 3 : 2, copies = Onto ? 2 : 1;  // copies: groups of them for a row
  constexpr int values = Centered ? 4 : 2;  // squares, g d, and g, the next row's mean; d = x - mean
  extern __shared__ uint4 places[];         // [group][ahead][x, dy, added][warps][chunks][32]
  __shared__ Exchange<values> exchanges[most_groups];
  const GroupRows rows(p.slabs, p.rows_per_factor, p.columns);
  Exchange<values>& exchange = exchanges[rows.group];
  const int tensor_size = chunks * rows.threads, row_size = tensors * tensor_size;
  uint4* const mine = places + rows.group * ahead * row_size + rows.column / width;
  uint4* const behind = mine + ahead * row_size;

  // Columns beyond the last and rows that are not there are 0.
  const uint16_t *const x = p.x + rows.image_at, *const dy = p.dy + rows.image_at,
                        *const added = p.added + rows.image_at;
  const auto fetch = [&](uint4* to, int at, bool there) {
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      copy_16_async(to + c * 32, x + at + c * 32 * width, there && rows.inside(c));
      copy_16_async(to + tensor_size + c * 32, dy + at + c * 32 * width, there && rows.inside(c));
    }
    commit_copies();
  };
  const auto fetch_added = [&](uint4* to, int at, bool there) {
#pragma unroll
    for (int c = 0; c < chunks; ++c)
      copy_16_async(to + 2 * tensor_size + c * 32, added + at + c * 32 * width, there && rows.inside(c));
    commit_copies();
  };
#pragma unroll
  for (int k = 0; k < ahead; ++k) {
    fetch(mine + k * row_size, rows.first + k * rows.step, k < rows.count);
    if constexpr (Onto) fetch_added(mine + k * row_size, rows.first + k * rows.step, k < rows.count);
  }
  float f[chunks][width] = {};
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    if (!rows.inside(c)) continue;
    const int column = rows.column + c * 32 * width;
    float w[width];
    load_or(p.factor, int64_t{rows.image} * p.columns + column, 0.0f, f[c]);
    load_or(p.weight, column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < width; ++j) f[c][j] = (p.unit + f[c][j]) * w[j];
  }
  exchange.clear(rows);
  const float per_column = 1.0f / static_cast<float>(rows.columns);
  const Adder<Bf16> adder(rows.lane);
  ColumnSums sums;
  // x of the row that comes next, and four times the thread's share of its sum.
  uint4 coming[chunks];
  const auto take = [&](const uint4* slot) {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      coming[c] = slot[c * 32];
      if constexpr (Centered) sum += sum_of_four_lanes<Bf16>(coming[c]);
    }
    return sum;
  };
  wait_copies<copies * ahead - 1>();
  float mean = take(mine);
  if constexpr (Centered) {
    float v[values] = {0, 0, 0, mean};
    exchange.sum(v, 1, rows);
    mean = v[3] * 0.25f * per_column;
  }

  uint4* slot = mine;
  uint16_t* const dx = p.dx + rows.image_at;
  int at = rows.first, turn = 0;
  for (int left = rows.count; left > 0; --left, turn ^= 1) {
    float v[values] = {}, d[chunks][width], g[chunks][width];
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      const uint4 gradient = slot[tensor_size + c * 32];
      const float middle = rows.inside(c) ? mean : 0.0f;
      unpack<Bf16>(coming[c], d[c]);
      unpack<Bf16>(gradient, g[c]);
      if constexpr (Centered) adder.add(gradient, sums.plain[c]);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        if constexpr (Centered) d[c][j] -= middle;
        const float scaled = g[c][j] * f[c][j];
        v[0] += d[c][j] * d[c][j];
        v[1] += scaled * d[c][j];
        if constexpr (Centered) v[2] += scaled;
      }
    }
    uint4* const next = slot + row_size == behind ? mine : slot + row_size;
    fetch(slot, at + ahead * rows.step, left > ahead);  // this thread has read what lies there
    wait_copies<copies*(ahead - 1)>();
    if constexpr (Centered) {
      v[3] = take(next);
    } else {
      take(next);
    }
    exchange.sum(v, turn, rows);
    const float r = rsqrtf(v[0] * per_column + p.eps);
    // dx = r (g - mean(g)) - d r^3 mean(g d)
    const float back = -v[1] * per_column * r * r * r, mean_g = Centered ? -v[2] * per_column * r : 0.0f;
#pragma unroll
    for (int c = 0; c < chunks; ++c) {
      float onto[width];
      if constexpr (Onto) unpack<Bf16>(slot[2 * tensor_size + c * 32], onto);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        g[c][j] *= r;
        sums.product[c][j] += g[c][j] * d[c][j];
        g[c][j] = g[c][j] * f[c][j] + (d[c][j] * back + mean_g);
        if constexpr (Onto) g[c][j] += onto[j];
      }
      if (p.dx != nullptr && rows.inside(c)) *reinterpret_cast<uint4*>(dx + at + c * 32 * width) = packed<Bf16>(g[c]);
    }
    if constexpr (Centered) mean = v[3] * 0.25f * per_column;
    if constexpr (Onto) fetch_added(slot, at + ahead * rows.step, left > ahead);
    at += rows.step;
    slot = next;
  }
  wait_copies<0>();
  add_groups(reinterpret_cast<float4*>(places), rows, sums);
  if (rows.group > 0) return;
  const int images = static_cast<int>(gridDim.x) / p.slabs, slab = static_cast<int>(blockIdx.x) - rows.image * p.slabs;
#pragma unroll
  for (int c = 0; c < chunks; ++c) {
    if (!rows.inside(c)) continue;
    const int column = rows.column + c * 32 * width;
    const int64_t to = (int64_t{slab} * images + rows.image) * p.columns + column;
    float w[width], plain[width];
    load_or(p.weight, column, 1.0f, w);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      sums.product[c][j] *= w[j];
      plain[j] = sums.plain[c][j / 4][j % 4];
    }
    put(partial.y[0], to, sums.product[c]);
    if (Centered && partial.y[1].data != nullptr) put(partial.y[1], to, plain);
  }
}

using Kernel = void (*)(Problem, Sums);

template <bool Bf16, int ahead>
Kernel kernel_for(bool centered, bool onto) {
  if (centered) return onto ? norm_slabs_kernel<Bf16, true, true, ahead> : norm_slabs_kernel<Bf16, true, false, ahead>;
  return onto ? norm_slabs_kernel<Bf16, false, true, ahead> : norm_slabs_kernel<Bf16, false, false, ahead>;
}

struct Plan {
  Kernel kernel;
  dim3 grid, block;
  size_t shared;
  int64_t slabs;  // of an image
};

int64_t warps_for(int64_t columns) { return ceil_div(columns, 32 * chunks * width); }

// Bytes of shared memory that a kernel may ask for beside its own.
int64_t shared_room(const Cuda& cuda) { return static_cast<int64_t>(cuda.device().sharedMemPerBlockOptin) - (8 << 10); }

// Bytes of a row's place.
int64_t place_bytes(int tensors, int64_t columns) {
  return int64_t{32} * static_cast<int64_t>(sizeof(uint4)) * tensors * chunks * warps_for(columns);
}

// Groups of as many threads as a row wants, and as many blocks as run at once.
Plan plan(const Cuda& cuda, const WideNorm& norm, bool onto, int64_t images, int64_t rows, int64_t columns) {
  const int64_t warps = warps_for(columns), place = place_bytes(onto ? 3 : 2, columns);
  const int64_t groups = std::clamp<int64_t>((usual_warps + warps / 2) / warps, 1,
                                             std::clamp<int64_t>(shared_room(cuda) / (2 * place), 1, most_groups));
  const int64_t ahead = groups * 3 * place <= std::min(on_the_way, shared_room(cuda)) ? 3 : 2;
  Plan plan;
  if (norm.x.dtype == LK_BF16) {
    plan.kernel = ahead == 3 ? kernel_for<true, 3>(norm.centered, onto) : kernel_for<true, 2>(norm.centered, onto);
  } else {
    plan.kernel = ahead == 3 ? kernel_for<false, 3>(norm.centered, onto) : kernel_for<false, 2>(norm.centered, onto);
  }
  plan.block = dim3(static_cast<unsigned>(32 * warps), static_cast<unsigned>(groups));
  // The sums of the groups take the place of the rows.
  const int64_t of_sums = (groups - 1) * int64_t{32} * warps * 4 * chunks * static_cast<int64_t>(sizeof(float4));
  plan.shared = static_cast<size_t>(std::max(groups * ahead * place, of_sums));
  const void* const kernel = reinterpret_cast<const void*>(plan.kernel);
  int resident = 1;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared)),
        "norm");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(32 * warps * groups),
                                                      plan.shared),
        "occupancy");
  const int64_t blocks = int64_t{cuda.device().multiProcessorCount} * std::max(resident, 1);
  plan.slabs = std::clamp<int64_t>(blocks / images, 1, ceil_div(rows, groups));
  plan.grid = dim3(static_cast<unsigned>(images * plan.slabs));
  return plan;
}

}  // namespace

bool wide_norm_fits(const Cuda& cuda, const WideNorm& norm, std::initializer_list<const lk_tensor*> rows,
                    std::initializer_list<const lk_tensor*> others) {
  constexpr int64_t most_places = int64_t{1} << 30;  // of an image: they are counted in 32 bits
  const int64_t columns = norm.x.dims[norm.x.rank - 1];
  if (cuda.capability() < 80 || norm.x.dtype == LK_F32) return false;
  if (columns % width != 0 || columns <= 64 * width || columns > most_columns) return false;
  if (norm.rows_per_factor * columns > most_places || 2 * place_bytes(3, columns) > shared_room(cuda)) return false;
  bool packed = aligned(norm.x, columns) && aligned(norm.weight, columns) && aligned(norm.factor, columns);
  for (const lk_tensor* const t : rows) {
    if (present(*t) && t->dtype != norm.x.dtype) return false;
    packed = packed && aligned(*t, columns);
  }
  for (const lk_tensor* const t : others) packed = packed && aligned(*t, columns);
  return packed || cuda.measuring();
}

void norm_slabs(Cuda& cuda, const WideNorm& norm, const lk_tensor& dy, const lk_tensor& added, const lk_tensor& dx,
                const Sums& sums) {
  const int64_t columns = norm.x.dims[norm.x.rank - 1], rows = norm.rows_per_factor;
  const int64_t images = numel(norm.x) / columns / rows, count = images * columns;
  const bool onto = present(added);
  const Plan how = plan(cuda, norm, onto, images, rows, columns);
  float* const scratch = cuda.scratch<float>(2 * how.slabs * count);
  Sums partial{};
  partial.y[0] = {scratch, LK_F32};
  if (sums.y[1].data != nullptr) partial.y[1] = {scratch + how.slabs * count, LK_F32};
  const Problem problem{static_cast<const uint16_t*>(norm.x.data),
                        static_cast<const uint16_t*>(dy.data),
                        static_cast<const uint16_t*>(added.data),
                        in(norm.weight),
                        in(norm.factor),
                        norm.unit,
                        static_cast<int>(columns),
                        static_cast<int>(rows),
                        norm.eps,
                        static_cast<uint16_t*>(dx.data),
                        static_cast<int>(how.slabs)};
  cuda.launch(how.kernel, how.grid, how.block, how.shared, problem, partial);
  add_slabs(cuda, scratch, 2, how.slabs, count, sums, 1.0f);
}

}  // namespace lk::cuda
