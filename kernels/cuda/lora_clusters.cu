// A cluster of blocks takes some rows, and each of its blocks a slice of dy's columns and one of x's. Tiles of rows
// pass through warps of five kinds:
//   loading     dy and s, and x
//   projecting  dy up over the slice, 16 rows a warp; blocks are sent in equal parts what they are to add up
//   adding      the sums of a part of the rows over all slices: ds, which is sent to all blocks in 16 bits
//   of dup      dy^T s, some columns a warp
//   of x        ds down, which goes to dx, and ds^T x
// Gradients stay in registers for all rows of a cluster; those of several clusters are added, in order, by the last to
// end. Where there are few rows, clusters that have the same ones share out dx's and the gradients' columns instead.
#include <algorithm>

#include "cuda/await_previous.cuh"
#include "cuda/convert.h"
#include "cuda/lora_clusters.cuh"
#include "cuda/lora_clusters.h"
#include "cuda/lora_clusters_gradients.cuh"
#include "cuda/skinny.h"
#include "cuda/tensor_map.h"

namespace lk::cuda {

namespace {

template <int Rank, int Units>
constexpr int most_threads = (Rank * Units <= 32) ? 768 : 640;

// Bytes of dynamic shared memory, in the order of Places, multiples of 1024.
struct Sizes {
  int dy, x, s, ds, up, leaving, joined;
  __host__ __device__ Sizes(const Problem& p, int rank, int units) {
    const auto rounded = [](int bytes) { return (bytes + 1023) / 1024 * 1024; };
    dy = rounded(p.tile_rows * p.dy_stages * p.dy_cols * 2);
    x = rounded(p.tile_rows * p.x_stages * p.x_cols * 2);
    s = rounded(p.tile_rows * p.dy_stages * rank * 2);
    ds = rounded(p.tile_rows * p.turns * rank * 2);
    up = rounded(p.dy_cols * rank * 2);
    leaving = rounded(p.tile_rows * p.turns * rank * 4);
    joined = rounded(p.x_warps / p.x_groups * (p.x_groups - 1) * units * rank / 2 * 32 * 4);
  }
  __host__ __device__ int all() const { return dy + x + s + ds + up + 2 * leaving + joined + 1024; }
};

template <int Rank, int Units, bool Bf16>
__global__ void __launch_bounds__(most_threads<Rank, Units>, 1)
    adapter_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Barriers barriers;
  const Share share(p);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < most_stages; ++stage) {
      hopper::barrier_init(&barriers.dy_full[stage], 1);
      hopper::barrier_init(&barriers.dy_empty[stage], p.projecting_warps + p.dup_warps);
      hopper::barrier_init(&barriers.x_full[stage], 1);
      hopper::barrier_init(&barriers.x_empty[stage], p.x_warps);
    }
    for (int turn = 0; turn < most_turns; ++turn) {
      hopper::barrier_init(&barriers.parts[turn], 2);  // the others' parts, and the block's own
      hopper::barrier_init(&barriers.ds[turn], 1);
      hopper::barrier_init(&barriers.used[turn], p.x_warps);
      hopper::barrier_arrive_with(&barriers.parts[turn], (p.tile_rows - p.tile_rows / share.blocks) * Rank * 4);
    }
    hopper::fence_barriers();
  }
  __syncthreads();
  hopper::cluster_begins();
  if (threadIdx.x == 0) hopper::expect_soon(maps.dy), hopper::expect_soon(maps.s);
  if (threadIdx.x == 32) hopper::expect_soon(maps.x);
  await_previous();
  const Sizes sizes(p, Rank, Units);
  Places places;
  unsigned char* place = memory + (1024 - hopper::shared_address(memory) % 1024) % 1024;
  places.dy = reinterpret_cast<uint16_t*>(place), place += sizes.dy;
  places.x = reinterpret_cast<uint16_t*>(place), place += sizes.x;
  places.s = reinterpret_cast<uint16_t*>(place), place += sizes.s;
  places.ds = reinterpret_cast<uint16_t*>(place), place += sizes.ds;
  places.up = reinterpret_cast<uint4*>(place), place += sizes.up;
  places.leaving = reinterpret_cast<float*>(place), place += sizes.leaving;
  places.parts = reinterpret_cast<float*>(place), place += sizes.leaving;
  places.joined = reinterpret_cast<float*>(place);
  int thread = static_cast<int>(threadIdx.x);
  const auto is_of = [&](int warps) {
    if (thread < warps * 32) return true;
    thread -= warps * 32;
    return false;
  };
  if (is_of(loading_warps)) {
    if (thread % 32 == 0) load_tiles<Rank>(p, maps, share, places, barriers, thread == 0);
    __syncwarp();
    hopper::cluster_has_begun();
    hopper::cluster_begins();
  } else if (is_of(p.projecting_warps)) {
    project<Rank, Bf16>(p, share, places, barriers, thread);
    hopper::cluster_begins();
  } else if (is_of(adding_warps)) {
    add_parts<Rank, Bf16>(p, share, places, barriers, thread);
    hopper::cluster_begins();
  } else if (is_of(p.dup_warps)) {
    make_dup<Rank, Units, Bf16>(p, share, places, barriers, thread);
  } else {
    take_x<Rank, Units, Bf16>(p, share, places, barriers, thread);
  }
  __syncwarp();
  hopper::cluster_has_begun();  // all have what was sent from here
#endif
}

// How a call is shared out.
struct Plan {
  int blocks = 0;  // of a cluster; 0: not at all
  int row_clusters = 1, column_clusters = 1, tile_rows = 16, units = 1;
  int projecting_warps = 4, x_groups = 0;  // 0: as many as there is room for
};

struct Variant {
  void (*kernel)(Problem, Maps) = nullptr;
  int most_threads = 0;
};

constexpr int most_rank = 32;

template <int Rank, int Units>
Variant variant(lk_dtype type) {
  return {type == LK_BF16 ? adapter_kernel<Rank, Units, true> : adapter_kernel<Rank, Units, false>,
          most_threads<Rank, Units>};
}

Variant variant(int64_t rank, int units, lk_dtype type) {
  if (rank == 16) return units == 1 ? variant<16, 1>(type) : variant<16, 2>(type);
  return units == 1 ? variant<most_rank, 1>(type) : Variant{};
}

// Few rows: a cluster has up to 256 of them, others the same rows and other columns, of which x's are 16 for a block or
// the fewest above. Many: as many clusters as there is room for have some each; what a tile waits for beside its own
// sums then takes longer than kernels apart, and so do tiles of few columns.
Plan plan_of(const Cuda& cuda, const lk_lora_backward_params& p, const Dx& d) {
  constexpr int64_t few_rows = 512, rows_of_cluster = 256, narrow = 1024;
  constexpr int64_t some_rows = 2048, most_rows = 8192, wide = 3072;
  const int64_t in = p.down.dims[1], out = p.up.dims[0], rows = numel(p.x) / in;
  Plan plan;
  plan.blocks = rows <= few_rows && out <= narrow ? 8 : 16;
  // So many multiprocessors may be where no cluster finds room.
  const int64_t places = (cuda.device().multiProcessorCount - plan.blocks) / plan.blocks;
  if (places < 2) return {};
  if (rows > few_rows) {
    if (present(p.mask) || present(p.ds) || present(d.added) || rows > most_rows) return {};
    if (rows > some_rows && in + out < wide) return {};
    plan.row_clusters = static_cast<int>(places);
    plan.tile_rows = 64, plan.projecting_warps = 4, plan.x_groups = 1;
    return plan;
  }
  plan.row_clusters = static_cast<int>(ceil_div(rows, rows_of_cluster));
  const int64_t cols = ceil_div(in, 16 * plan.blocks * (places / plan.row_clusters)) * 16;
  plan.column_clusters = static_cast<int>(ceil_div(in, cols * plan.blocks));
  plan.tile_rows = 128;
  plan.projecting_warps = static_cast<int>(std::min<int64_t>(ceil_div(ceil_div(rows, plan.row_clusters), 16), 8));
  return plan;
}

// Of a plan; no kernel where it does not fit.
struct Launch {
  Problem problem{};
  void (*kernel)(Problem, Maps) = nullptr;
  size_t shared = 0;
  unsigned clusters = 0, threads = 0;
  int blocks = 0, units = 1;
};

Launch launch_of(const Cuda& cuda, const lk_lora_backward_params& p, const Plan& plan) {
  Launch launch;
  const int64_t in = p.down.dims[1], out = p.up.dims[0], rows = numel(p.x) / in;
  const int rank = static_cast<int>(padded_rank(p.down.dims[0]));
  const Variant v = variant(rank, plan.units, p.dy.dtype);
  if (plan.blocks == 0 || v.kernel == nullptr) return launch;
  Problem& to = launch.problem;
  to.rows = static_cast<int>(rows), to.in = static_cast<int>(in), to.out = static_cast<int>(out);
  to.rank = static_cast<int>(p.down.dims[0]);
  to.column_clusters = plan.column_clusters;
  to.tile_rows = plan.tile_rows;
  to.span = static_cast<int>(ceil_div(ceil_div(rows, plan.row_clusters), 16) * 16);
  to.row_clusters = static_cast<int>(ceil_div(rows, to.span));
  to.dy_cols = static_cast<int>(ceil_div(out, int64_t{plan.blocks} * 16) * 16);
  to.x_cols = static_cast<int>(ceil_div(in, int64_t{plan.blocks} * plan.column_clusters * 16) * 16);
  to.projecting_warps = plan.projecting_warps;
  const int64_t width = plan.units * 16;
  if (present(p.dup)) to.dup_warps = static_cast<int>(ceil_div(ceil_div(to.dy_cols, width), plan.column_clusters));
  const int of_x = static_cast<int>(ceil_div(to.x_cols, width));
  const int left = v.most_threads / 32 - loading_warps - to.projecting_warps - adding_warps - to.dup_warps;
  to.x_groups = plan.x_groups != 0 ? plan.x_groups : std::clamp(left / of_x, 1, to.projecting_warps);
  to.x_warps = of_x * to.x_groups;
  if (to.x_warps > left) return launch;
  const int tiles = static_cast<int>(ceil_div(to.span, plan.tile_rows));
  const int most = static_cast<int>(cuda.device().sharedMemPerBlockOptin - sizeof(Barriers));
  to.turns = std::min(tiles, most_turns);
  to.dy_stages = to.x_stages = std::min(tiles, 2);
  for (bool grown = true; grown;) {
    grown = false;
    for (int* stages : {&to.x_stages, &to.dy_stages}) {
      if (*stages == std::min(tiles, most_stages)) continue;
      ++*stages;
      grown = Sizes(to, rank, plan.units).all() <= most;
      if (!grown) --*stages;
    }
  }
  const int shared = Sizes(to, rank, plan.units).all();
  if (shared > most) return launch;
  launch.shared = static_cast<size_t>(shared);
  launch.clusters = static_cast<unsigned>(to.row_clusters * to.column_clusters);
  launch.threads =
      static_cast<unsigned>(loading_warps + to.projecting_warps + adding_warps + to.dup_warps + to.x_warps) * 32;
  const auto* const kernel = reinterpret_cast<const void*>(v.kernel);
  if (plan.blocks > 8)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), "clusters of 16");
  const dim3 cluster(1, static_cast<unsigned>(plan.blocks));
  if (cuda.clusters_at_once(kernel, cluster, launch.threads, launch.shared) < launch.clusters) return launch;
  launch.kernel = v.kernel;
  return launch;
}

// The first of what fits: smaller tiles, more columns to a warp.
Launch launch_of(const Cuda& cuda, const lk_lora_backward_params& p, const Dx& d) {
  Plan plan = plan_of(cuda, p, d);
  Launch launch;
  for (plan.units = 1; plan.units <= 2 && launch.kernel == nullptr; ++plan.units) {
    launch = launch_of(cuda, p, plan);
    launch.blocks = plan.blocks, launch.units = plan.units;
  }
  if (launch.kernel != nullptr || plan.tile_rows == 64) return launch;
  plan.units = 1, plan.tile_rows = 64, plan.projecting_warps = std::min(plan.projecting_warps, 4);
  launch = launch_of(cuda, p, plan);
  launch.blocks = plan.blocks, launch.units = plan.units;
  return launch;
}

bool fits(const Cuda& cuda, const lk_lora_backward_params& p, const Dx& d) {
  const lk_dtype type = p.dy.dtype;
  const int64_t in = p.down.dims[1], out = p.up.dims[0], rank = p.down.dims[0];
  if (!cuda.has_clusters() || rank > most_rank || !skinny_fits(cuda, type, rank) || p.x.dtype != type) return false;
  if (p.down.dtype != LK_F32 || p.up.dtype != LK_F32 || in % 8 != 0 || out % 8 != 0) return false;
  if (!present(p.ddown) || (present(d.dx) && d.dx.dtype != type)) return false;
  if (present(p.dup) && (p.s.dtype != type || !present(p.s))) return false;
  if (!cuda.measuring())
    for (const lk_tensor* t : {&p.x, &p.dy, &p.s, &d.dx, &d.added})
      if (reinterpret_cast<uintptr_t>(t->data) % 16 != 0) return false;
  return true;
}

}  // namespace

bool lora_clusters(Cuda& cuda, const lk_lora_backward_params& p, const Dx& d) {
  if (!fits(cuda, p, d)) return false;
  Launch launch = launch_of(cuda, p, d);
  if (launch.kernel == nullptr) return false;
  Problem& to = launch.problem;
  to.up = static_cast<const float*>(p.up.data), to.down = static_cast<const float*>(p.down.data);
  to.mask = in(p.mask), to.scale = p.scale;
  to.dx = static_cast<uint16_t*>(d.dx.data), to.added = static_cast<const uint16_t*>(d.added.data);
  to.ds = out(p.ds), to.ddown = out(p.ddown), to.dup = out(p.dup);
  to.add = p.accumulate != 0;
  const int rank = static_cast<int>(padded_rank(to.rank));
  const int64_t s_pitch = even_pitch(to.rank);  // as bulk copies take it
  const void* s = p.s.data;
  if (to.dup_warps > 0 && s_pitch != to.rank) {
    s = cuda.scratch<uint16_t>(to.rows * s_pitch);
    convert(cuda, {p.s.data, p.s.dtype, to.rank, 0}, {s, p.s.dtype, s_pitch, 0}, 1, to.rows, to.rank);
  }
  if (to.row_clusters > 1) {
    const int64_t slices = int64_t{launch.blocks} * to.column_clusters * (to.dup_warps + to.x_warps);
    to.partial = cuda.scratch<float4>(slices * to.row_clusters * launch.units * rank / 8 * 32);
    to.ended = cuda.arrivals();
  }
  if (cuda.measuring()) return true;
  const auto map = [&](const void* data, int width, int64_t pitch, int box) {
    return tensor_map<2>(data, p.dy.dtype,
                         {.dims = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(to.rows)},
                          .pitches = {static_cast<cuuint64_t>(pitch) * 2},
                          .box = {static_cast<cuuint32_t>(box), static_cast<cuuint32_t>(to.tile_rows)}});
  };
  Maps maps{.dy = map(p.dy.data, to.out, to.out, 1 << log_of_box(to.dy_cols)),
            .x = map(p.x.data, to.in, to.in, 1 << log_of_box(to.x_cols)),
            .s = {}};
  if (to.dup_warps > 0) maps.s = map(s, to.rank, s_pitch, rank);
  cuda.launch_columns(launch.kernel, dim3(launch.clusters, static_cast<unsigned>(launch.blocks)), dim3(launch.threads),
                      launch.shared, to, maps);
  return true;
}

}  // namespace lk::cuda
