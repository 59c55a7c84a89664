// The forward pass of attention to few keys: a warp has 16 queries of a head, s = q k^T of all keys stays in its
// registers, and so does p = exp(scale s - largest), which goes into o = p v as it is, rounded to 16 bits. The sum that
// o is divided by is of the weights before they are rounded.
#include "cuda/attention_few_keys.cuh"
#include "cuda/attention_few_keys.h"
#include "cuda/await_previous.cuh"

namespace lk::cuda {

namespace {

using namespace few_keys;

constexpr int threads = 256, tile = threads / 32 * 16;  // queries of a block

struct Forward {
  Problem problem;
  Heads o;
  float* lse;  // [batch, heads, queries], or nullptr
};

template <int Keys>
struct Shared {
  unsigned char k[Keys * row_bytes], q[tile * row_bytes], v[Keys * row_bytes];
};

// s becomes exp(scale s - largest). Of the lane's two rows: the sums, and their logarithms with the largest.
template <int pieces>
__device__ inline void exponentials(float (&s)[pieces][4], uint32_t seen, float factor, float (&total)[2],
                                    float (&lse)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = -INFINITY;
#pragma unroll
    for (int j = 0; j < pieces; ++j) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        s[j][i] = is_seen(seen, j, i) ? s[j][i] * factor : -INFINITY;
        top = fmaxf(top, s[j][i]);
      }
    }
    top = quad_max(top);
    const float shift = top == -INFINITY ? 0.0f : top;  // so that 2^(-inf - shift) is 0
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < pieces; ++j) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        s[j][i] = exp2_fast(s[j][i] - shift);
        sum += s[j][i];
      }
    }
    total[half] = quad_sum(sum);
    lse[half] = total[half] == 0.0f ? -INFINITY : shift * (1.0f / log2_e) + logf(total[half]);
  }
}

// o = p v, not yet divided by the sums.
template <bool Bf16, int pieces>
__device__ inline void weigh_values(const float (&p)[pieces][4], unsigned char* v, int lane, float (&o)[8][4]) {
#pragma unroll
  for (int step = 0; step < pieces / 2; ++step) {
    const float(&low)[4] = p[step * 2], (&high)[4] = p[step * 2 + 1];
    const uint32_t a[4] = {pack<Bf16>(low[0], low[1]), pack<Bf16>(low[2], low[3]), pack<Bf16>(high[0], high[1]),
                           pack<Bf16>(high[2], high[3])};
#pragma unroll
    for (int chunk = 0; chunk < row_chunks; chunk += 2) {
      uint32_t words[4];
      load_square<true>(words, v, step * 16, chunk, lane);
      multiply_add_one<Bf16, 0>(o[chunk], a, words);
      multiply_add_one<Bf16, 1>(o[chunk + 1], a, words);
    }
  }
}

template <bool Bf16, int Keys>
__global__ void __launch_bounds__(threads, 2) few_keys_kernel(const __grid_constant__ Forward f) {
  await_previous();
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<Keys>*>(memory);
  const Problem& p = f.problem;
  const int block = static_cast<int>(blockIdx.x), head = block / p.tiles, first = block % p.tiles * tile;
  const int lane = static_cast<int>(threadIdx.x) % 32, own = static_cast<int>(threadIdx.x) / 32 * 16;
  load_keys<Keys, threads>(shared.k, p, p.k, head);
  load_queries<tile, threads>(shared.q, p, p.q, head, first);
  commit_copies();
  load_keys<Keys, threads>(shared.v, p, p.v, head);
  commit_copies();
  const uint32_t seen = seen_keys<Keys / 8>(p, head / p.heads, 0);
  wait_copies<1>();
  __syncthreads();
  float s[1][Keys / 8][4], total[2], lse[2];
  multiply_rows<Bf16, 2>(s, shared.q, own, shared.k, 0, lane);
  exponentials(s[0], seen, p.scale * log2_e, total, lse);
  wait_copies<0>();
  __syncthreads();
  float o[8][4] = {};
  weigh_values<Bf16>(s[0], shared.v, lane, o);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first + own + lane / 4 + half * 8;
    const bool there = query < p.queries;
    const float factor = total[half] == 0.0f ? 0.0f : 1.0f / total[half];
    uint16_t* const to = static_cast<uint16_t*>(f.o.data) + head_at<width>(f.o.at, head, p.heads) + query * f.o.at.row;
    store_row<Bf16>(o, 0, half, factor, to, there);
    store_row<Bf16>(o, 4, half, factor, to + 32, there);
    if (f.lse != nullptr && there && lane % 4 == 0) f.lse[int64_t{head} * p.queries + query] = lse[half];
  }
}

template <bool Bf16, int Keys>
void run(Cuda& cuda, const Forward& f, dim3 blocks) {
  cuda.launch(few_keys_kernel<Bf16, Keys>, blocks, threads, sizeof(Shared<Keys>), f);
}

template <bool Bf16>
void run(Cuda& cuda, const Forward& f, dim3 blocks) {
  if (f.problem.keys <= 32) return run<Bf16, 32>(cuda, f, blocks);
  if (f.problem.keys <= 80) return run<Bf16, 80>(cuda, f, blocks);
  run<Bf16, most_keys>(cuda, f, blocks);
}

}  // namespace

bool attention_of_few_keys(Cuda& cuda, const lk_attention_params& p) {
  if (const char* const why = unsuitable(cuda, p, {&p.q, &p.k, &p.v, &p.o}); why != nullptr)
    return cuda.passes_over("own kernel for few keys", why);
  // cuDNN takes as long or less (H200, 10 heads of 4096 rows and 77 keys: 10.8 us, 13.2 here), but for unseen keys it
  // has to be given copies and lengths first.
  if (!present(p.key_lengths) && !present(p.key_mask))
    return cuda.passes_over("own kernel for few keys", "every key is seen");
  const Forward f{problem_of(p, tile), heads_of(p.o), static_cast<float*>(p.lse.data)};
  const dim3 blocks(static_cast<unsigned>(p.q.dims[0] * p.q.dims[2] * f.problem.tiles));
  p.q.dtype == LK_BF16 ? run<true>(cuda, f, blocks) : run<false>(cuda, f, blocks);
  return true;
}

}  // namespace lk::cuda
