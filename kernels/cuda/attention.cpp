// Attention: cuDNN's fused kernels where they apply, own kernels for everything else: with matrix instructions
// (attention_fragments.cuh) for 16-bit numbers, in float32 (attention_kernels.cu) for the rest. In front of all come
// own kernels where they are faster: for few keys (attention_few_keys.h), and on capability 9.0 for heads of 64 and for
// the backward pass of those of 128 (attention_hopper.h).
//
// cuDNN takes bf16 or f16 throughout, no bias, no cap on the scores, and head widths that are multiples of 8. Lengths
// of keys become its padding mask. What it does with items of length 0 and with gradients of keys after the length is
// not defined, so it is told a length of at least 1 and blank_rows sets the results that nobody sees.
//
// A mask of keys becomes lengths too: copies of k and v have the seen rows first (attention_keys.cu). With a causal
// mask that would lose the rows' positions, so the two together are for the own kernels. A causal mask with different
// numbers of queries and keys is theirs as well.
//
// Grouped heads: the forward pass reads k and v as they are, or where cuDNN has no such plan, copies with every head
// repeated. The backward pass always takes the copies, so its plans are those of ungrouped heads, and sums up dk and dv
// of each group afterwards, in order.
#include "cuda/attention.h"

#include <limits>

#include "check.h"
#include "cuda/attention_few_keys.h"
#include "cuda/attention_hopper.h"
#include "cuda/attention_plans.h"
#include "cuda/dense.h"
#include "cuda/dnn_graph.h"
#include "lines.h"

namespace lk::cuda {

namespace {

// What the backward pass in order may store of dS at a time: little of a small card's memory.
int64_t most_stored_scores(const Cuda& cuda) {
  return std::min<int64_t>(int64_t{1} << 30, static_cast<int64_t>(cuda.device().totalGlobalMem / 32));
}

template <class Params>
int64_t group(const Params& p) {
  return p.q.dims[2] / p.k.dims[2];
}

// Whether cuDNN is worth asking. While measuring, addresses mean nothing: operands count as aligned.
template <class Params>
bool suits_cudnn(const Cuda& cuda, const Params& p, int64_t widest, std::initializer_list<const lk_tensor*> tensors) {
  const int64_t queries = p.q.dims[1], width = p.q.dims[3];
  const auto no = [&](const char* why) { return cuda.passes_over("cuDNN", why); };
  if (cuda.capability() < 80) return no("capability below 8.0");
  if (present(p.bias) || p.soft_cap != 0.0f) return no("bias or soft_cap");
  if (width > widest || width % 8 != 0) return no("width of heads");
  if (p.causal != 0 && (queries != p.k.dims[1] || queries == 1 || present(p.key_mask)))
    return no("causal, but not square or with key_mask");
  if (p.q.dtype != LK_BF16 && p.q.dtype != LK_F16) return no("neither bf16 nor f16");
  const bool rearranged = present(p.key_lengths) || present(p.key_mask) || group(p) > 1;  // by copies of dense tensors
  for (const lk_tensor* t : tensors) {
    if (t != &p.lse && t->dtype != p.q.dtype) return no("mixed types");
    if (t != &p.lse && !heads_in_lines(*t)) return no("heads not in lines");
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(t->data) % 16 != 0) return no("not aligned to 16 bytes");
    if (rearranged && !is_dense(*t)) return no("not dense, with keys to copy");
  }
  return true;
}

// With the heads of k as they are, or repeated.
template <class Params>
AttentionShape shape(const Params& p, bool repeated) {
  const int64_t heads = p.q.dims[2];
  return {p.q.dims[0], p.q.dims[1], p.k.dims[1], heads, repeated ? heads : p.k.dims[2], p.q.dims[3]};
}

template <class Params>
AttentionPlaces places(const Params& p, bool repeated) {
  const Spacing row = repeated && group(p) > 1
                          ? Spacing{p.k.dims[1] * p.q.dims[2] * p.q.dims[3], p.q.dims[2] * p.q.dims[3]}
                          : Spacing{};
  return {spacing_of(p.q), row.row > 0 ? row : spacing_of(p.k), row.row > 0 ? row : spacing_of(p.v), spacing_of(p.o)};
}

// k and v as cuDNN reads them, and how many of their first rows are seen.
struct Keys {
  lk_tensor k, v, lengths;  // lengths: absent where all are
  KeyPlaces places;
  bool copied;

  template <class Params>
  Keys(Cuda& cuda, const Params& p, bool repeated)
      : k(p.k), v(p.v), lengths(p.key_lengths), copied(repeated || present(p.key_mask)) {
    if (present(p.key_mask)) {
      places = place_keys(cuda, p.key_mask, p.key_lengths);
      lengths.data = places.counts;
    }
    if (copied) {
      k = copy_keys(cuda, p.k, repeated ? group(p) : 1, places);
      v = copy_keys(cuda, p.v, repeated ? group(p) : 1, places);
    }
  }
  const int32_t* length_values() const { return static_cast<const int32_t*>(lengths.data); }
};

template <class Params>
std::string name(const char* op, const Params& p) {
  return std::string(op) + " of q " + shape_text(shape_of(p.q)) + ", k " + shape_text(shape_of(p.k)) + " in " +
         lk_dtype_name(p.q.dtype);
}

// Scratch with the lengths of every item, or nothing where the plan reads none. `given` may be nullptr: all keys.
struct LengthValues {
  int32_t *queries = nullptr, *keys = nullptr;
  LengthValues(Cuda& cuda, const AttentionShape& s, const AttentionMasks& masks, const int32_t* given,
               int64_t spacing) {
    if (!masks.lengths) return;
    queries = cuda.scratch<int32_t>(s.batch * spacing);
    keys = cuda.scratch<int32_t>(s.batch * spacing);
    write_lengths(cuda, given, s.batch, s.queries, s.keys, spacing, queries, keys);
  }
};

bool attention_by_cudnn(Cuda& cuda, const lk_attention_params& p) {
  if (!suits_cudnn(cuda, p, 512, {&p.q, &p.k, &p.v, &p.o, &p.lse})) return false;
  const AttentionMasks masks{present(p.key_lengths) || present(p.key_mask), p.causal != 0};
  bool repeated = false;
  const DnnPlan* plan = forward_plan(cuda, shape(p, repeated), places(p, repeated), p.q.dtype, masks);
  if (plan == nullptr && group(p) > 1) {
    repeated = true;
    plan = forward_plan(cuda, shape(p, repeated), places(p, repeated), p.q.dtype, masks);
  }
  if (plan == nullptr) return cuda.passes_over("cuDNN", "it has no plan for this");
  const AttentionShape s = shape(p, repeated);
  const int64_t rows = s.heads * s.queries;
  const Keys keys(cuda, p, repeated);
  const LengthValues lengths(cuda, s, masks, keys.length_values(), 1);
  void* const lse = present(p.lse) ? p.lse.data : cuda.scratch<float>(s.batch * rows);
  void* const workspace = cuda.scratch<std::byte>(plan->workspace());
  cuda.dnn().run(*plan,
                 {{q_id, p.q.data},
                  {k_id, keys.k.data},
                  {v_id, keys.v.data},
                  {o_id, p.o.data},
                  {lse_id, lse},
                  {scale_id, &p.scale},
                  {query_lengths_id, lengths.queries},
                  {key_lengths_id, lengths.keys},
                  {lowest_id, &lowest}},
                 workspace);
  if (masks.lengths) {
    const int32_t* const given = keys.length_values();
    blank_rows(cuda, given, s.batch, s.queries, s.heads * s.width, false, 0.0f, p.o.data, p.o.dtype);
    blank_rows(cuda, given, s.batch, rows, 1, false, -std::numeric_limits<float>::infinity(), lse, LK_F32);
  }
  return true;
}

// How much of the problem one call takes when ds is stored, in tiles of 128 x 128 of a 16-bit type: everything, or as
// many heads of one item as the limit allows.
AttentionShape in_order_slice(const Cuda& cuda, const AttentionShape& all) {
  const int64_t most = most_stored_scores(cuda);
  const int64_t plane = ceil_div(all.queries, 128) * ceil_div(all.keys, 128) * 128 * 128 * 2;
  AttentionShape slice = all;
  if (all.batch * all.heads * plane <= most) return slice;
  slice.batch = 1;
  while (slice.heads > 1 && (all.heads % slice.heads != 0 || slice.heads * plane > most)) --slice.heads;
  slice.key_heads = slice.heads;
  return slice;
}

bool attention_backward_by_cudnn(Cuda& cuda, const lk_attention_backward_params& p) {
  if (!suits_cudnn(cuda, p, 256, {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv, &p.lse})) return false;
  const bool in_order = !cuda.fast(), some_seen = present(p.key_lengths) || present(p.key_mask);
  const AttentionShape all = shape(p, true);
  const AttentionMasks masks{some_seen || mask_needed(all), p.causal != 0};
  const AttentionShape slice = in_order ? in_order_slice(cuda, all) : all;
  AttentionPlaces at = places(p, true);
  at.d_o = spacing_of(p.d_o), at.dq = spacing_of(p.dq);
  at.dk = group(p) > 1 ? at.k : spacing_of(p.dk), at.dv = group(p) > 1 ? at.v : spacing_of(p.dv);
  const DnnPlan* const plan = backward_plan(cuda, slice, at, p.q.dtype, masks, in_order);
  if (plan == nullptr) return cuda.passes_over("cuDNN", "it has no plan for this");
  // The statistics of a slice may begin anywhere, cuDNN wants them at multiples of 16 bytes: slices use a copy.
  const bool sliced = slice.batch != all.batch || slice.heads != all.heads;
  const int64_t rows = slice.batch * slice.heads * slice.queries;
  float* const delta = cuda.scratch<float>(rows);
  float* const lse_copy = sliced ? cuda.scratch<float>(rows) : nullptr;
  const int64_t spacing = sliced ? 4 : 1;
  const Keys keys(cuda, p, group(p) > 1);
  lk_tensor dk = p.dk, dv = p.dv;
  if (keys.copied) {
    dk = keys.k, dv = keys.v;
    dk.data = cuda.scratch<uint16_t>(numel(dk));
    dv.data = cuda.scratch<uint16_t>(numel(dv));
  }
  const LengthValues lengths(cuda, all, masks, keys.length_values(), spacing);
  float* const dq_sum = in_order ? nullptr : cuda.scratch<float>(numel(p.q));
  void* const workspace = cuda.scratch<std::byte>(plan->workspace());
  for (int64_t b = 0; b < all.batch; b += slice.batch) {
    for (int64_t h = 0; h < all.heads; h += slice.heads) {
      const auto part = [&](const lk_tensor& t) {
        const int64_t offset = b * spacing_of(t).item + h * all.width;
        return static_cast<std::byte*>(t.data) + offset * lk_dtype_size(t.dtype);
      };
      const float* lse = static_cast<const float*>(p.lse.data) + (b * all.heads + h) * all.queries;
      if (sliced) {
        if (!cuda.measuring()) {
          cuda.copy_async(LK_COMPUTE, lse_copy, lse, rows * static_cast<int64_t>(sizeof(float)));
        }
        lse = lse_copy;
      }
      cuda.dnn().run(*plan,
                     {{q_id, part(p.q)},
                      {k_id, part(keys.k)},
                      {v_id, part(keys.v)},
                      {o_id, part(p.o)},
                      {lse_id, lse},
                      {scale_id, &p.scale},
                      {query_lengths_id, masks.lengths ? lengths.queries + b * spacing : nullptr},
                      {key_lengths_id, masks.lengths ? lengths.keys + b * spacing : nullptr},
                      {lowest_id, &lowest},
                      {d_o_id, part(p.d_o)},
                      {dq_id, part(p.dq)},
                      {dk_id, part(dk)},
                      {dv_id, part(dv)},
                      {one_id, &one},
                      {delta_id, delta},
                      {dq_sum_id, dq_sum}},
                     workspace);
    }
  }
  if (keys.copied) {
    collect_key_gradient(cuda, dk, group(p), keys.places, p.dk);
    collect_key_gradient(cuda, dv, group(p), keys.places, p.dv);
  }
  if (some_seen) {
    const int32_t* const given = keys.length_values();
    blank_rows(cuda, given, all.batch, all.queries, all.heads * all.width, false, 0.0f, p.dq.data, p.dq.dtype);
    if (!present(p.key_mask)) {
      const int64_t width = p.k.dims[2] * all.width;
      blank_rows(cuda, given, all.batch, all.keys, width, true, 0.0f, p.dk.data, p.dk.dtype);
      blank_rows(cuda, given, all.batch, all.keys, width, true, 0.0f, p.dv.data, p.dv.dtype);
    }
  }
  return true;
}

// Where nothing takes the operands as they lie.
void attention_dense(Cuda& cuda, lk_attention_params p) {
  for (lk_tensor* const t : {&p.q, &p.k, &p.v}) *t = dense_copy(cuda, *t);
  const DenseOutput o(cuda, p.o);
  p.o = o.tensor();
  if (!attention_by_cudnn(cuda, p) && !attention_by_fragments(cuda, p)) attention_by_kernels(cuda, p);
  o.store(cuda);
}

void attention_backward_dense(Cuda& cuda, lk_attention_backward_params p) {
  for (lk_tensor* const t : {&p.d_o, &p.q, &p.k, &p.v, &p.o}) *t = dense_copy(cuda, *t);
  const DenseOutput dq(cuda, p.dq), dk(cuda, p.dk), dv(cuda, p.dv);
  p.dq = dq.tensor(), p.dk = dk.tensor(), p.dv = dv.tensor();
  if (!attention_backward_by_cudnn(cuda, p) && !attention_backward_by_fragments(cuda, p))
    attention_backward_by_kernels(cuda, p);
  for (const DenseOutput* const y : {&dq, &dk, &dv}) y->store(cuda);
}

}  // namespace

Spacing spacing_of(const lk_tensor& x) {
  int64_t strides[LK_MAX_RANK];
  strides_of(x, strides);
  const int64_t row = x.dims[1] == 1 ? x.dims[2] * x.dims[3] : strides[1];
  return {x.dims[0] == 1 ? x.dims[1] * row : strides[0], row};
}

bool heads_in_lines(const lk_tensor& x) {
  const std::optional<Lines> lines = lines_of(x);
  return lines->dense() || (lines->line % (x.dims[2] * x.dims[3]) == 0 && lines->pitch % 8 == 0);
}

void attention(Cuda& cuda, const lk_attention_params& p) {
  named_failures([&] { return name("attention", p); },
                 [&] {
                   if (attention_of_few_keys(cuda, p) || attention_on_hopper(cuda, p)) return;
                   if (!attention_by_cudnn(cuda, p)) attention_dense(cuda, p);
                 });
}

void attention_backward(Cuda& cuda, const lk_attention_backward_params& p) {
  named_failures([&] { return name("attention_backward", p); },
                 [&] {
                   if (attention_backward_of_few_keys(cuda, p)) return;
                   if (attention_backward_on_hopper(cuda, p) || attention_backward_wide_on_hopper(cuda, p)) return;
                   if (attention_backward_by_cudnn(cuda, p)) return;
                   attention_backward_dense(cuda, p);
                 });
}

}  // namespace lk::cuda
