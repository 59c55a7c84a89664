// The forward pass of attention with heads of 64.
//
// An item is some queries of a head, 64 of them in each warpgroup that multiplies, and passes over tiles of 128 keys,
// which one thread of another warpgroup loads. A warpgroup has a tile's scores in registers:
//   s = q k^T,  p = exp(scale s - largest so far),  o = o exp(what the largest has grown by) + p v
// p v of a tile and q k^T of the next are issued together: the one runs while it makes exponentials of the other.
//
// Where an item begins in one block and ends in another (attention_order.cuh), who does not begin it leaves its o, not
// yet divided by the sum of p, with that sum and the largest score; who does adds them up in order.
#include "cuda/attention_hopper.cuh"
#include "cuda/attention_hopper.h"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

constexpr int width = 64, key_rows = 128, row_bytes = width * 2, key_bytes = key_rows * row_bytes;
constexpr int group_rows = 64, group_bytes = group_rows * row_bytes, stages = 3;
constexpr int left_numbers = width / 2 + 4;  // of a thread at the end of an item: o, two largest scores, two sums

struct Problem {
  void* o;          // [batch, queries, heads, 64]
  float* lse;       // [batch, heads, queries], or nullptr
  float4* ends;     // [blocks, left_numbers / 4, threads that multiply], of items that another block began
  uint32_t* ended;  // [blocks]: whether they are there; 0 before and after
  int queries, keys, heads;
  Order order;
  Spacing o_at;
  float scale;
};

// q as boxes of 64 rows of a head, k and v of 128.
struct Maps {
  CUtensorMap q, k, v;
};

template <int groups>
struct Shared {
  alignas(1024) unsigned char q[groups][group_bytes], k[stages][key_bytes], v[stages][key_bytes];
  uint64_t q_full, q_empty, k_full[stages], k_empty[stages], v_full[stages], v_empty[stages];
  Part part;  // with q_full
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using namespace hopper;

// By one thread.
template <int groups>
__device__ void load(const Problem& p, const Maps& maps, Shared<groups>& s) {
  Ring<stages> at;
  int parity = 1;
  for (Parts parts(p.order);; parity ^= 1) {
    const Part part = parts.next(p.order);
    barrier_wait(&s.q_empty, parity);
    s.part = part;
    if (part.begin == part.end) {
      barrier_arrive(&s.q_full);
      return;
    }
    const int batch = part.head / p.heads, head = part.head % p.heads;
    barrier_arrive_with(&s.q_full, groups * group_bytes);
    for (int i = 0; i < groups; ++i)
      copy_rows(s.q[i], maps.q, batch, (part.item_of_head * groups + i) * group_rows, head, &s.q_full);
    for (int t = part.begin; t < part.end; ++t, at.next()) {
      barrier_wait(&s.k_empty[at.stage], at.parity ^ 1);
      barrier_arrive_with(&s.k_full[at.stage], key_bytes);
      copy_rows(s.k[at.stage], maps.k, batch, t * key_rows, head, &s.k_full[at.stage]);
      barrier_wait(&s.v_empty[at.stage], at.parity ^ 1);
      barrier_arrive_with(&s.v_full[at.stage], key_bytes);
      copy_rows(s.v[at.stage], maps.v, batch, t * key_rows, head, &s.v_full[at.stage]);
    }
  }
}

// What a thread has of its two rows: scores as they are, and the sum of its own columns' exponentials.
struct Rows {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
};

// scores become exponentials; `shrink` is what earlier ones are to be multiplied by.
__device__ inline void exponentials(float (&scores)[64], Rows& rows, float (&shrink)[2], float factor) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = rows.largest[half];
#pragma unroll
    for (int j = 0; j < 16; ++j) most = fmaxf(most, fmaxf(scores[j * 4 + half * 2], scores[j * 4 + half * 2 + 1]));
    most = quad_max(most);
    const float shift = most * factor;
    shrink[half] = exp2_fast(fmaf(rows.largest[half], factor, -shift));
    rows.largest[half] = most;
    float sum[2] = {};
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& v = scores[j * 4 + half * 2 + i];
        v = exp2_fast(fmaf(v, factor, -shift));
        sum[i] += v;
      }
    }
    rows.sum[half] = fmaf(rows.sum[half], shrink[half], sum[0] + sum[1]);
  }
}

// Columns that are no keys.
__device__ inline void hide(float (&scores)[64], int keys_left) {
  const int column = lane_now() % 4 * 2;
#pragma unroll
  for (int j = 0; j < 64; ++j) scores[j] = j / 4 * 8 + column + j % 2 < keys_left ? scores[j] : -INFINITY;
}

__device__ inline void multiply_halves(float (&o)[32], const float (&by)[2]) {
#pragma unroll
  for (int j = 0; j < 32; ++j) o[j] *= by[j % 4 / 2];
}

// Places of a block for the end of an item, as a multiplying thread has them.
template <int groups>
__device__ inline float4* end_of(const Problem& p, int block) {
  return p.ends + int64_t{block} * (left_numbers / 4) * (groups * 128) + threadIdx.x - 128;
}

// For the block that began the item.
template <int groups>
__device__ inline void leave_end(const Problem& p, const float (&o)[32], const Rows& rows) {
  float4* const to = end_of<groups>(p, static_cast<int>(blockIdx.x));
#pragma unroll
  for (int j = 0; j < 8; ++j) to[j * groups * 128] = make_float4(o[j * 4], o[j * 4 + 1], o[j * 4 + 2], o[j * 4 + 3]);
  to[8 * groups * 128] = make_float4(rows.largest[0], rows.largest[1], rows.sum[0], rows.sum[1]);
  tell_end<groups * 128>(p.ended + blockIdx.x);
}

// What other blocks made of an item that this one began, in their order.
template <int groups>
__device__ inline void add_ends(const Problem& p, int item_end, float (&o)[32], Rows& rows) {
  const float factor = p.scale * log2_e;
  for (int block = static_cast<int>(blockIdx.x) + 1; first_unit(p.order.units, p.order.blocks, block) < item_end;
       ++block) {
    await_end(p.ended + block);
    const float4* const from = end_of<groups>(p, block);
    const float4 of_rows = __ldcg(from + 8 * groups * 128);
    const float largest[2] = {of_rows.x, of_rows.y}, sum[2] = {of_rows.z, of_rows.w};
    float own[2], other[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float most = fmaxf(rows.largest[half], largest[half]);
      own[half] = exp2_fast((rows.largest[half] - most) * factor);
      other[half] = exp2_fast((largest[half] - most) * factor);
      rows.largest[half] = most;
      rows.sum[half] = rows.sum[half] * own[half] + sum[half] * other[half];
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 four = __ldcg(from + j * groups * 128);
      o[j * 4] = o[j * 4] * own[0] + four.x * other[0], o[j * 4 + 1] = o[j * 4 + 1] * own[0] + four.y * other[0];
      o[j * 4 + 2] = o[j * 4 + 2] * own[1] + four.z * other[1],
                o[j * 4 + 3] = o[j * 4 + 3] * own[1] + four.w * other[1];
    }
    forget_end<groups * 128>(p.ended + block);
  }
}

template <class T>
__device__ inline void store(const Problem& p, const Part& part, int first, const float (&o)[32], const Rows& rows) {
  const int64_t to = head_at<width>(p.o_at, part.head, p.heads);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int lane = lane_now(), query = first + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4 + half * 8;
    const float sum = quad_sum(rows.sum[half]);
    const bool there = query < p.queries;
    store_row(o, half, 1 / sum, static_cast<T*>(p.o) + to + query * p.o_at.row, there);
    if (p.lse != nullptr && there && lane % 4 == 0)
      p.lse[int64_t{part.head} * p.queries + query] = fmaf(rows.largest[half], p.scale, logf(sum));
  }
}

// Turns of the warpgroups to issue products, so that some compute exponentials while another's products run: `turn`
// waits for the own one, `pass` gives the next its own.
__device__ inline void turn(int group) { asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory"); }
template <int groups>
__device__ inline void pass(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(2 + (group + 1) % groups) : "memory");
}

template <class T, int groups>
__device__ void multiply(const Problem& p, Shared<groups>& s) {
  using M = Multiply<T>;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0) - 1;
  const bool tells = threadIdx.x % 32 == 0;
  const Matrix q_rows(shared_address(s.q[group]));
  const float factor = p.scale * log2_e;
  Ring<stages> k_at, v_at;
  const auto multiply_keys = [&](float(&scores)[64]) {
    const Matrix k_rows(shared_address(s.k[k_at.stage]));
    barrier_wait(&s.k_full[k_at.stage], k_at.parity);
    multiplies_begin();
    M::template by_rows<false>(scores, q_rows.at(0), k_rows.at(0));
#pragma unroll
    for (int step = 1; step < 4; ++step) M::template by_rows<true>(scores, q_rows.at(step * 2), k_rows.at(step * 2));
    multiplies_commit();
  };
  const auto add_values = [&](float(&o)[32], const uint32_t(&packed)[32]) {
    const Matrix v_across(shared_address(s.v[v_at.stage]));
    barrier_wait(&s.v_full[v_at.stage], v_at.parity);
    multiplies_begin();
#pragma unroll
    for (int step = 0; step < 8; ++step) M::add_from_registers(o, packed + step * 4, v_across.at(step * 128));
    multiplies_commit();
  };
  const auto pack = [](const float(&scores)[64], uint32_t(&packed)[32]) {
#pragma unroll
    for (int j = 0; j < 32; ++j) packed[j] = M::pack(scores[j * 2], scores[j * 2 + 1]);
  };
  const auto release = [&](uint64_t* empty, Ring<stages>& at) {
    if (tells) barrier_arrive(empty + at.stage);
    at.next();
  };
  if (group == groups - 1) pass<groups>(group);
  for (int parity = 0;; parity ^= 1) {
    barrier_wait(&s.q_full, parity);
    int left = s.part.end - s.part.begin;
    if (left == 0) return;
    int keys_left = p.keys - s.part.begin * key_rows;
    float o[32] = {}, scores[64], shrink[2];
    uint32_t packed[32];
    Rows rows;
    turn(group);
    multiply_keys(scores);
    pass<groups>(group);
    multiplies_wait<0>();
    hold(scores);
    release(s.k_empty, k_at);
    if (keys_left < key_rows) hide(scores, keys_left);
    exponentials(scores, rows, shrink, factor);
    pack(scores, packed);
    for (; left > 1; --left) {
      keys_left -= key_rows;
      turn(group);
      multiply_keys(scores);
      add_values(o, packed);
      pass<groups>(group);
      multiplies_wait<1>();
      hold(scores);
      release(s.k_empty, k_at);
      if (keys_left < key_rows) hide(scores, keys_left);
      exponentials(scores, rows, shrink, factor);
      multiplies_wait<0>();
      hold(o);
      hold(packed);
      release(s.v_empty, v_at);
      multiply_halves(o, shrink);
      pack(scores, packed);
    }
    const Part part = s.part;  // not kept in registers meanwhile
    __syncwarp();
    if (tells) barrier_arrive(&s.q_empty);
    add_values(o, packed);
    multiplies_wait<0>();
    hold(o);
    release(s.v_empty, v_at);
    if (part.begin > 0) {
      leave_end<groups>(p, o, rows);
      continue;
    }
    if (part.end < p.order.tiles) add_ends<groups>(p, part.first_unit + p.order.tiles, o, rows);
    store<T>(p, part, (part.item_of_head * groups + group) * group_rows, o, rows);
  }
}

#endif

template <class T, int groups>
__global__ void __launch_bounds__(128 + groups * 128, 1)
    forward_kernel(const __grid_constant__ Problem p, const __grid_constant__ Maps maps) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char memory[];
  using S = Shared<groups>;
  S& s = aligned<S>(memory);
  if (threadIdx.x == 0) {
    constexpr int warps = groups * 4;
    barrier_init(&s.q_full, 1);
    barrier_init(&s.q_empty, warps);
    for (int stage = 0; stage < stages; ++stage) {
      barrier_init(&s.k_full[stage], 1);
      barrier_init(&s.v_full[stage], 1);
      barrier_init(&s.k_empty[stage], warps);
      barrier_init(&s.v_empty[stage], warps);
    }
    fence_async();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<groups == 2 ? 24 : 32>();
    if (threadIdx.x == 0) load(p, maps, s);
  } else {
    more_registers<groups == 2 ? 240 : 160>();
    multiply<T, groups>(p, s);
  }
#endif
}

Order order_with(const Cuda& cuda, const lk_attention_params& p, int groups) {
  return order_of(p.q.dims[0] * p.q.dims[2], ceil_div(p.q.dims[1], groups * group_rows),
                  ceil_div(p.k.dims[1], key_rows), cuda.device().multiProcessorCount);
}

template <class T, int groups>
void run(Cuda& cuda, const lk_attention_params& p, Problem problem) {
  const Order& order = problem.order = order_with(cuda, p, groups);
  problem.ends = cuda.scratch<float4>(int64_t{order.blocks} * (left_numbers / 4) * groups * 128);
  if (cuda.measuring()) return;
  const Maps maps{head_rows<width>(p.q, group_rows), head_rows<width>(p.k, key_rows), head_rows<width>(p.v, key_rows)};
  cuda.launch_together(forward_kernel<T, groups>, dim3(static_cast<unsigned>(order.blocks)), 128 + groups * 128,
                       sizeof(Shared<groups>) + 1024, problem, maps);
}

// What the longest share takes: its tiles, and one more to begin and end. Three warpgroups wait less for each other.
bool three_are_faster(const Cuda& cuda, const lk_attention_params& p) {
  const auto time = [&](int groups) {
    const Order order = order_with(cuda, p, groups);
    return static_cast<double>(groups) * (order.rounds * order.tiles + ceil_div(order.units, order.blocks) + 1);
  };
  return time(3) < 1.08 * time(2);
}

}  // namespace

bool attention_on_hopper(Cuda& cuda, const lk_attention_params& p) {
  if (!suits_hopper(cuda, p, width, false, {&p.q, &p.k, &p.v, &p.o})) return false;
  if (!(p.scale > 0)) return pass_over(cuda, "scale is not above 0");
  const int64_t heads = p.q.dims[0] * p.q.dims[2], tiles = ceil_div(p.k.dims[1], key_rows);
  const int64_t items = heads * ceil_div(p.q.dims[1], 2 * group_rows);
  if (!can_share_out(cuda, items * tiles)) return false;
  // Where short items are many, cuDNN's blocks, of which several are on a processor, begin and end beside each other.
  if (tiles <= 8 && items >= 2 * cuda.device().multiProcessorCount) return pass_over(cuda, "many short items");
  const Problem problem{.o = p.o.data,
                        .lse = static_cast<float*>(p.lse.data),
                        .ended = cuda.arrivals(),
                        .queries = static_cast<int>(p.q.dims[1]),
                        .keys = static_cast<int>(p.k.dims[1]),
                        .heads = static_cast<int>(p.q.dims[2]),
                        .o_at = spacing_of(p.o),
                        .scale = p.scale};
  const auto run_as = [&]<class T>(T) {
    three_are_faster(cuda, p) ? run<T, 3>(cuda, p, problem) : run<T, 2>(cuda, p, problem);
  };
  p.q.dtype == LK_BF16 ? run_as(__nv_bfloat16()) : run_as(__half());
  return true;
}

}  // namespace lk::cuda
