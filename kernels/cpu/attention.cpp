// Scaled dot-product attention. q, o [B, Sq, H, D], k and v [B, Sk, Hk, D], bias [1|B, 1|H, Sq, Sk], lse [B, H, Sq].
//
// A head of q is a matrix with row stride H D, a head of k one with row stride Hk D, so no head is ever copied out. The
// forward pass takes blocks of query rows: scores [block, keys] = scale q k^T + bias, softmax by rows, o = p v; the
// scores of a block are the only intermediate. The softmax divides o instead of p, which is the smaller of the two.
//
// The backward pass recomputes p = e^(scores - lse) block by block:
//   dv += p^T do,  dp = do v^T,  ds = p (dp - sum_d(do o)),  dq = scale ds k,  dk += scale ds^T q
// A cap on the scores multiplies ds by its slope 1 - tanh^2. One task owns the dk and dv of a key head and takes the
// query heads of its group in turn, so they are added up in a fixed order.
//
// A query that sees no key (length 0, nothing in the mask, bias -inf everywhere) has o = 0, lse = -inf and takes no
// part in gradients.
#include <cstring>

#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/row_math.h"

namespace lk::cpu {

namespace {

constexpr int64_t block_floats = 128 << 10;  // scores of one task
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

struct Problem {
  int64_t batch, queries, keys, heads, key_heads, depth;
  const float *q, *k, *v, *bias;
  int64_t bias_batch, bias_head;  // strides, 0 where broadcast
  const int32_t *key_lengths, *key_mask;
  float scale, soft_cap;
  bool causal;

  int64_t group() const { return heads / key_heads; }
  int64_t stride() const { return heads * depth; }
  int64_t key_stride() const { return key_heads * depth; }
  int64_t block() const { return std::min(queries, std::clamp<int64_t>(block_floats / keys, 32, 256)); }
  int64_t query_offset(int64_t b, int64_t h, int64_t i) const { return ((b * queries + i) * heads + h) * depth; }
  // h: a head of q
  int64_t key_offset(int64_t b, int64_t h) const { return (b * keys * key_heads + h / group()) * depth; }
  // Keys below this index are seen by some query of rows < last.
  int64_t visible(int64_t b, int64_t last) const {
    const int64_t length = key_lengths != nullptr ? std::clamp<int64_t>(key_lengths[b], 0, keys) : keys;
    return causal ? std::min(length, last) : length;
  }
};

template <class Params>
Problem problem(const Params& p, const float* q, const float* k, const float* v, const float* bias) {
  const int64_t plane = p.q.dims[1] * p.k.dims[1];
  const bool per_batch = present(p.bias) && p.bias.dims[0] > 1, per_head = present(p.bias) && p.bias.dims[1] > 1;
  return {.batch = p.q.dims[0],
          .queries = p.q.dims[1],
          .keys = p.k.dims[1],
          .heads = p.q.dims[2],
          .key_heads = p.k.dims[2],
          .depth = p.q.dims[3],
          .q = q,
          .k = k,
          .v = v,
          .bias = bias,
          .bias_batch = per_batch ? p.bias.dims[1] * plane : 0,
          .bias_head = per_head ? plane : 0,
          .key_lengths = static_cast<const int32_t*>(p.key_lengths.data),
          .key_mask = static_cast<const int32_t*>(p.key_mask.data),
          .scale = p.scale,
          .soft_cap = p.soft_cap,
          .causal = p.causal != 0};
}

// x becomes cap tanh(x / cap); slope, unless nullptr, its derivative by x.
void cap_row(float* x, int64_t n, float cap, float* slope) {
  const float inverse = 1.0f / cap;
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] = tanh_float(x[j] * inverse);
  if (slope != nullptr) {
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) slope[j] = 1.0f - x[j] * x[j];
  }
  row_scale(x, n, cap);
}

// s [last - first, seen] = scale q k^T, capped, + bias; keys that a row may not see get -inf. `slopes`, like s, where
// they are wanted and the scores are capped.
void scores(const Problem& a, int64_t b, int64_t h, int64_t first, int64_t last, int64_t seen, float* s,
            float* slopes = nullptr) {
  gemm_serial(last - first, seen, a.depth, a.scale, {a.q + a.query_offset(b, h, first), a.stride()},
              {a.k + a.key_offset(b, h), a.key_stride(), true}, 0.0f, s, seen);
  for (int64_t i = first; i < last; ++i) {
    float* const row = s + (i - first) * seen;
    const int64_t limit = a.visible(b, i + 1);
    if (a.soft_cap > 0.0f) cap_row(row, limit, a.soft_cap, slopes != nullptr ? slopes + (i - first) * seen : nullptr);
    if (a.bias != nullptr) {
      const float* const bias = a.bias + b * a.bias_batch + h * a.bias_head + i * a.keys;
#pragma omp simd
      for (int64_t j = 0; j < limit; ++j) row[j] += bias[j];
    }
    if (a.key_mask != nullptr) {
      const int32_t* const mask = a.key_mask + b * a.keys;
#pragma omp simd
      for (int64_t j = 0; j < limit; ++j) row[j] = mask[j] != 0 ? row[j] : minus_infinity;
    }
    for (int64_t j = limit; j < seen; ++j) row[j] = minus_infinity;
  }
}

void forward_block(const Problem& a, int64_t b, int64_t h, int64_t first, int64_t last, float* s, float* o,
                   float* lse) {
  const int64_t seen = a.visible(b, last), rows = last - first;
  float* const out = o + a.query_offset(b, h, first);
  float* const log_sums = lse != nullptr ? lse + (b * a.heads + h) * a.queries + first : nullptr;
  if (seen == 0) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memset(out + i * a.stride(), 0, static_cast<size_t>(a.depth) * sizeof(float));
      if (log_sums != nullptr) log_sums[i] = minus_infinity;
    }
    return;
  }
  scores(a, b, h, first, last, seen, s);
  float inverse[256];
  for (int64_t i = 0; i < rows; ++i) {
    float* const row = s + i * seen;
    const float largest = row_max(row, seen);
    const float shift = largest == minus_infinity ? 0.0f : largest;  // all -inf (sum 0) or NaN (sum NaN)
    const double sum = row_exp(row, seen, shift);
    inverse[i] = sum == 0.0 ? 0.0f : static_cast<float>(1.0 / sum);
    if (log_sums != nullptr) log_sums[i] = sum == 0.0 ? minus_infinity : static_cast<float>(shift + std::log(sum));
  }
  gemm_serial(rows, a.depth, seen, 1.0f, {s, seen}, {a.v + a.key_offset(b, h), a.key_stride()}, 0.0f, out, a.stride());
  for (int64_t i = 0; i < rows; ++i) row_scale(out + i * a.stride(), a.depth, inverse[i]);
}

struct Gradients {
  const float *d_o, *o, *lse;
  float *dq, *dk, *dv;
};

// `slopes` is nullptr where the scores are not capped.
void backward_block(const Problem& a, const Gradients& g, int64_t b, int64_t h, int64_t first, int64_t last, float* p,
                    float* ds, float* slopes) {
  const int64_t seen = a.visible(b, last), rows = last - first, offset = a.query_offset(b, h, first);
  const int64_t keys = a.key_offset(b, h);
  if (seen == 0) {
    for (int64_t i = 0; i < rows; ++i) {
      std::memset(g.dq + offset + i * a.stride(), 0, static_cast<size_t>(a.depth) * sizeof(float));
    }
    return;
  }
  scores(a, b, h, first, last, seen, p, slopes);
  gemm_serial(rows, seen, a.depth, 1.0f, {g.d_o + offset, a.stride()}, {a.v + keys, a.key_stride(), true}, 0.0f, ds,
              seen);
  for (int64_t i = 0; i < rows; ++i) {
    const float log_sum = g.lse[(b * a.heads + h) * a.queries + first + i];
    const float delta =
        static_cast<float>(row_dot(g.d_o + offset + i * a.stride(), g.o + offset + i * a.stride(), a.depth));
    float *const p_row = p + i * seen, *const ds_row = ds + i * seen;
    if (log_sum == minus_infinity) {
      std::memset(p_row, 0, static_cast<size_t>(seen) * sizeof(float));
      std::memset(ds_row, 0, static_cast<size_t>(seen) * sizeof(float));
      continue;
    }
#pragma omp simd
    for (int64_t j = 0; j < seen; ++j) {
      const float probability = exp_float(p_row[j] - log_sum);
      p_row[j] = probability;
      ds_row[j] = probability * (ds_row[j] - delta);
    }
    if (slopes != nullptr) {  // those after the limit were not computed
      const float* const slope = slopes + i * seen;
      const int64_t limit = a.visible(b, first + i + 1);
#pragma omp simd
      for (int64_t j = 0; j < limit; ++j) ds_row[j] *= slope[j];
    }
  }
  gemm_serial(seen, a.depth, rows, 1.0f, {p, seen, true}, {g.d_o + offset, a.stride()}, 1.0f, g.dv + keys,
              a.key_stride());
  gemm_serial(rows, a.depth, seen, a.scale, {ds, seen}, {a.k + keys, a.key_stride()}, 0.0f, g.dq + offset, a.stride());
  gemm_serial(seen, a.depth, rows, a.scale, {ds, seen, true}, {a.q + offset, a.stride()}, 1.0f, g.dk + keys,
              a.key_stride());
}

}  // namespace

void attention(Cpu& cpu, const lk_attention_params& p) {
  const FloatIn q(cpu, p.q), k(cpu, p.k), v(cpu, p.v), bias(cpu, p.bias);
  const FloatOut o(cpu, p.o), lse(cpu, p.lse);
  const Problem a = problem(p, q, k, v, bias);
  const int64_t block = a.block(), blocks = (a.queries + block - 1) / block;
  const Scratch<float> scratch(cpu, cpu.threads() * block * a.keys);
  parallel_tasks(cpu, a.batch * a.heads * blocks, [&](int64_t task, int64_t slot) {
    const int64_t head = task / blocks, first = task % blocks * block;
    forward_block(a, head / a.heads, head % a.heads, first, std::min(a.queries, first + block),
                  scratch.data() + slot * block * a.keys, o, lse);
  });
}

void attention_backward(Cpu& cpu, const lk_attention_backward_params& p) {
  const FloatIn q(cpu, p.q), k(cpu, p.k), v(cpu, p.v), bias(cpu, p.bias);
  const FloatIn d_o(cpu, p.d_o), o(cpu, p.o), lse(cpu, p.lse);
  const FloatOut dq(cpu, p.dq), dk(cpu, p.dk), dv(cpu, p.dv);
  const Problem a = problem(p, q, k, v, bias);
  const Gradients g{d_o, o, lse, dq, dk, dv};
  const int64_t block = a.block(), buffer = block * a.keys, buffers = a.soft_cap > 0.0f ? 3 : 2;
  const Scratch<float> scratch(cpu, buffers * cpu.threads() * buffer);
  parallel_tasks(cpu, a.batch * a.key_heads, [&](int64_t task, int64_t slot) {
    const int64_t b = task / a.key_heads, first_head = task % a.key_heads * a.group();
    for (int64_t j = 0; j < a.keys; ++j) {
      const int64_t row = a.key_offset(b, first_head) + j * a.key_stride();
      std::memset(g.dk + row, 0, static_cast<size_t>(a.depth) * sizeof(float));
      std::memset(g.dv + row, 0, static_cast<size_t>(a.depth) * sizeof(float));
    }
    float* const own = scratch.data() + buffers * slot * buffer;
    for (int64_t h = first_head; h < first_head + a.group(); ++h) {
      for (int64_t first = 0; first < a.queries; first += block) {
        backward_block(a, g, b, h, first, std::min(a.queries, first + block), own, own + buffer,
                       buffers > 2 ? own + 2 * buffer : nullptr);
      }
    }
  });
}

}  // namespace lk::cpu
