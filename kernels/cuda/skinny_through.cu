// Two kernels: one projects, one spreads. A block takes some rows and a part of the columns, so that the weights are
// read once for many rows. The parts' sums are added up, in order, by every block that spreads them, or, where none
// does, by blocks that share them out.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/skinny.h"
#include "cuda/skinny_spread.cuh"

namespace lk::cuda {

namespace {

using namespace skinny;

// By blockIdx.z. The kernels of one job are apart from those of several, whose arguments have to be looked up: 0.2 us.
template <int Jobs>
struct Passes {
  Pass of[Jobs];
};

// Of a multiprocessor, by registers.
template <int Rank>
constexpr int blocks_at_once = Rank > 64 ? 1 : 2;

// Blocks behind those that have rows see to `narrow`.
__device__ inline int64_t block_that_narrows(const Pass& pass) {
  return int64_t{blockIdx.x - static_cast<unsigned>(pass.row_blocks)} * gridDim.y + blockIdx.y;
}

template <int Rank, bool Bf16, bool ByRank, int Stages, int Jobs>
__global__ void __launch_bounds__(threads, blocks_at_once<Rank>) project_kernel(Passes<Jobs> passes) {
  const Pass& pass = passes.of[Jobs == 1 ? 0 : blockIdx.z];
  if (Jobs > 1 && static_cast<int>(blockIdx.y) >= pass.parts) return;
  if (blockIdx.x == 0) expect_weights(pass);
  await_previous();
  extern __shared__ __align__(128) unsigned char memory[];
  project<Rank, Bf16, ByRank>(pass, *reinterpret_cast<Projecting<Rank, Stages>*>(memory));
}

// In shared memory.
template <int Rank>
struct Spreading {
  alignas(128) uint16_t weights[slice_bytes / 2];
  alignas(16) Projected<Rank> projected;
};

template <int Rank, bool Bf16, bool ByRank, int Jobs>
__global__ void __launch_bounds__(threads, blocks_at_once<Rank>) spread_kernel(Passes<Jobs> passes) {
  const Pass& pass = passes.of[Jobs == 1 ? 0 : blockIdx.z];
  const Through& p = pass.p;
  if (static_cast<int>(blockIdx.x) >= pass.row_blocks) {  // the kernel in front, which projects, leaves v alone
    if (p.narrow != nullptr) narrow(pass, block_that_narrows(pass));
    return await_previous();
  }
  extern __shared__ __align__(128) unsigned char memory[];
  auto& [weights, projected] = *reinterpret_cast<Spreading<Rank>*>(memory);
  Spread<Rank, Bf16, ByRank> spread(pass);
  const auto adders = static_cast<unsigned>(pass.adders);
  if (!spread.wanted() && blockIdx.y >= adders) return await_previous();
  if (spread.wanted()) spread.begin(weights);
  await_previous();
  const int thread = static_cast<int>(threadIdx.x), own = adders > 1 ? static_cast<int>(blockIdx.y) : 0;
  const int64_t block_row = int64_t{blockIdx.x} * pass.row_groups * tile_rows;
  for (int i = (own * threads + thread) * 4; i < pass.row_groups * tile_rows * Rank; i += pass.adders * threads * 4) {
    const int64_t row = block_row + i / Rank;
    const bool inside = row < p.rows;
    const float* const terms = pass.partial + (inside ? row * Rank + i % Rank : 0);
    float4 parts[most_parts];
#pragma unroll
    for (int k = 0; k < most_parts; ++k)
      parts[k] = inside && k < pass.parts ? *reinterpret_cast<const float4*>(terms + k * p.rows * Rank)
                                          : make_float4(0, 0, 0, 0);
    float4 sums = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < most_parts; ++k)
      sums.x += parts[k].x, sums.y += parts[k].y, sums.z += parts[k].z, sums.w += parts[k].w;
    *reinterpret_cast<uint2*>(&projected[i / Rank][i % Rank]) =
        finish<Bf16>(p, row, i % Rank, sums, blockIdx.y < adders);
  }
  __syncthreads();
  if (spread.wanted()) spread.run(projected, weights);
}

template <int Jobs>
struct Kernels {
  using Kernel = void (*)(Passes<Jobs>);
  Kernel project, spread;
  size_t project_shared, spread_shared;
};

template <int Jobs, int Rank, bool Bf16, bool ByRank, int Stages>
Kernels<Jobs> kernels_for() {
  return {project_kernel<Rank, Bf16, ByRank, Stages, Jobs>, spread_kernel<Rank, Bf16, ByRank, Jobs>,
          sizeof(Projecting<Rank, Stages>), sizeof(Spreading<Rank>)};
}

template <int Jobs, int Rank, int Stages>
Kernels<Jobs> kernels_for(const Through& p) {
  if (p.type == LK_BF16)
    return p.by_rank ? kernels_for<Jobs, Rank, true, true, Stages>() : kernels_for<Jobs, Rank, true, false, Stages>();
  return p.by_rank ? kernels_for<Jobs, Rank, false, true, Stages>() : kernels_for<Jobs, Rank, false, false, Stages>();
}

// With as many stages as all blocks find room for.
template <int Jobs, int Rank>
Kernels<Jobs> kernels_for(const Cuda& cuda, const Through& p) {
  const auto fit = [&](size_t bytes) {
    return cuda.device().sharedMemPerMultiprocessor >= blocks_at_once<Rank> * (bytes + 1024);
  };
  if (fit(sizeof(Projecting<Rank, 4>))) return kernels_for<Jobs, Rank, 4>(p);
  return fit(sizeof(Projecting<Rank, 3>)) ? kernels_for<Jobs, Rank, 3>(p) : kernels_for<Jobs, Rank, 2>(p);
}

template <int Jobs, int Rank>
void run(Cuda& cuda, std::span<const Through> jobs) {
  const Through& first = jobs.front();
  const auto count = static_cast<unsigned>(jobs.size());
  // At most as many blocks as run at once. With as many rows, for each block reads the weights of its part, as leave
  // two in three of these places taken by parts that have a slice at least.
  int64_t widest = 0;
  for (const Through& p : jobs) widest = std::max(widest, p.in);
  const int64_t places = int64_t{cuda.device().multiProcessorCount} * blocks_at_once<Rank> / count,
                tiles = ceil_div(first.rows, tile_rows),
                useful = std::clamp<int64_t>(widest * Rank * 2 / slice_bytes, 1, most_parts);
  int row_groups = warps;
  while (row_groups > 1 && ceil_div(tiles, row_groups) * useful * 3 < places * 2) row_groups /= 2;
  const int64_t row_blocks = ceil_div(tiles, row_groups);
  const int64_t parts = std::clamp<int64_t>(places / row_blocks, 1, most_parts);
  Passes<Jobs> passes{};
  int64_t projecting = 1, spreading = 1, narrowing = 0;  // blocks of a row, twice, and all that see to `narrow`
  for (unsigned i = 0; i < count; ++i) {
    const Through& p = jobs[i];
    Pass& pass = passes.of[i];
    pass.p = p;
    pass.whole.a = in_pieces(p.a, p.in, 8);
    pass.whole.w = in_pieces(p.w, p.by_rank ? p.rank : p.in, 4);
    pass.whole.v = in_pieces(p.v, p.by_rank ? p.out : p.rank, 4);
    pass.whole.spread = in_pieces(p.spread.data, p.out, 8);
    pass.row_groups = row_groups;
    pass.row_blocks = static_cast<int>(row_blocks);
    pass.part_cols = ceil_div(ceil_div(p.in, parts), step_cols) * step_cols;
    pass.parts = static_cast<int>(ceil_div(p.in, pass.part_cols));
    pass.spread_cols = ceil_div(ceil_div(std::max<int64_t>(p.out, 1), parts), 32) * 32;
    const bool spreads = p.spread.data != nullptr;
    pass.pieces = spreads ? static_cast<int>(ceil_div(p.out, pass.spread_cols)) : 0;
    pass.adders = spreads ? 1 : std::max(row_groups * tile_rows * Rank / (2 * threads * 4), 1);
    pass.partial = cuda.scratch<float>(pass.parts * p.rows * Rank);
    if (p.narrow != nullptr) narrowing = std::max(narrowing, ceil_div(numbers_of_narrow(p), int64_t{threads} * 8));
    projecting = std::max<int64_t>(projecting, pass.parts);
    spreading = std::max<int64_t>({spreading, pass.pieces, pass.adders});
  }
  const auto grid = [&](int64_t high, bool narrows) {
    const int64_t wide = row_blocks + (narrows ? ceil_div(narrowing, high) : 0);
    return dim3(static_cast<unsigned>(wide), static_cast<unsigned>(high), count);
  };
  const auto kernels = kernels_for<Jobs, Rank>(cuda, first);
  cuda.launch(kernels.project, grid(projecting, false), threads, kernels.project_shared, passes);
  cuda.launch(kernels.spread, grid(spreading, true), threads, kernels.spread_shared, passes);
}

}  // namespace

bool skinny_fits(const Cuda& cuda, lk_dtype type, int64_t rank) {
  return cuda.capability() >= 80 && type != LK_F32 && rank <= skinny_rank;
}

bool takes_base(const Cuda& cuda, const Through& p, const In& base) {
  const bool pieces = cuda.measuring() || (in_pieces(p.spread.data, p.out, 8) && in_pieces(base.data, p.out, 8));
  return pieces && p.spread.dtype == p.type && base.dtype == p.type;
}

void skinny_through(Cuda& cuda, std::span<const Through> jobs) {
  with_padded_rank(padded_rank(jobs.front().rank), [&](auto rank) {
    jobs.size() == 1 ? run<1, rank()>(cuda, jobs) : run<LK_LORA_GROUP_MAX, rank()>(cuda, jobs);
  });
}

}  // namespace lk::cuda
