// Attention: cuDNN's fused kernels where they apply, own kernels (attention_kernels.cu) for everything else.
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
#include "cuda/attention_hopper.h"
#include "cuda/dense.h"
#include "cuda/dnn.h"
#include "cuda/dnn_graph.h"
#include "lines.h"

namespace lk::cuda {

namespace {

// What one call of a plan computes: `batch` items and `heads` of the tensors' `all_heads`; as many heads of k and v, or
// all of them where they are fewer (`key_heads`).
struct Shape {
  int64_t batch, queries, keys, heads, key_heads, width;
};

// How the tensors of the backward pass lie; those of the forward pass are the first four.
struct Places {
  Spacing q, k, v, o, d_o{}, dq{}, dk{}, dv{};
};

struct Masks {
  bool lengths, causal;
};

enum class Operation : int64_t { attention = 1, attention_backward, attention_backward_in_order };

enum Id : int64_t {
  q_id = 1,
  k_id,
  v_id,
  o_id,
  lse_id,
  scale_id,
  query_lengths_id,
  key_lengths_id,
  lowest_id,
  d_o_id,
  dq_id,
  dk_id,
  dv_id,
  one_id,
  delta_id,
  dq_sum_id
};

constexpr float one = 1.0f, lowest = std::numeric_limits<float>::lowest();

// The descriptions of the tensors of one call.
class Tensors {
 public:
  Tensors(DnnGraph& graph, const Shape& s, const Places& at, cudnnDataType_t type)
      : at(at), graph_(graph), s_(s), type_(type) {}

  const Places& at;
  DnnTensor query_rows(int64_t id, const Spacing& spacing) {  // [b, h, Sq, d]
    return graph_.real(id, type_, query_dims(), strides(spacing));
  }
  DnnTensor key_rows(int64_t id, const Spacing& spacing) {  // [b, hk, Sk, d]
    return graph_.real(id, type_, key_dims(), strides(spacing));
  }
  DnnTensor keys_transposed(int64_t id, const Spacing& spacing) {  // [b, hk, d, Sk]
    return graph_.real(id, type_, {s_.batch, s_.key_heads, s_.width, s_.keys},
                       {spacing.item, s_.width, 1, spacing.row});
  }
  DnnTensor inner_key_rows() { return graph_.inner(type_, key_dims(), strides(at.k)); }
  DnnTensor inner_query_rows() { return graph_.inner(CUDNN_DATA_FLOAT, query_dims(), strides(at.o)); }
  DnnTensor query_sums(int64_t id) {  // float32, dense
    const DnnDims dims{s_.batch, s_.heads, s_.queries, s_.width};
    return graph_.real(id, CUDNN_DATA_FLOAT, dims, dense_strides(dims));
  }
  DnnTensor statistics(int64_t id) {
    const DnnDims dims{s_.batch, s_.heads, s_.queries, 1};
    return graph_.real(id, CUDNN_DATA_FLOAT, dims, dense_strides(dims));
  }
  DnnTensor inner_statistics() { return graph_.inner(CUDNN_DATA_FLOAT, {s_.batch, s_.heads, s_.queries, 1}); }
  DnnTensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return graph_.inner(type, {s_.batch, s_.heads, s_.queries, s_.keys});
  }
  DnnTensor scores_transposed() {  // in the storage type, as a view
    const int64_t plane = s_.queries * s_.keys;
    return graph_.inner(type_, {s_.batch, s_.heads, s_.keys, s_.queries}, {s_.heads * plane, plane, 1, s_.keys});
  }
  DnnTensor lengths(int64_t id) { return graph_.real(id, CUDNN_DATA_INT32, {s_.batch, 1, 1, 1}, {1, 1, 1, 1}); }
  cudnnDataType_t type() const { return type_; }

 private:
  DnnDims query_dims() const { return {s_.batch, s_.heads, s_.queries, s_.width}; }
  DnnDims key_dims() const { return {s_.batch, s_.key_heads, s_.keys, s_.width}; }
  DnnDims strides(const Spacing& spacing) const { return {spacing.item, s_.width, spacing.row, 1}; }

  DnnGraph& graph_;
  const Shape& s_;
  cudnnDataType_t type_;
};

// Both nullptr where there are none.
struct Lengths {
  DnnTensor queries = nullptr, keys = nullptr;
  Lengths(Tensors& t, const Masks& masks) {
    if (!masks.lengths) return;
    queries = t.lengths(query_lengths_id);
    keys = t.lengths(key_lengths_id);
  }
};

void describe_forward(DnnGraph& graph, Tensors t, const Masks& masks) {
  const Lengths lengths(t, masks);
  graph.sdpa({.q = t.query_rows(q_id, t.at.q),
              .k = t.key_rows(k_id, t.at.k),
              .v = t.key_rows(v_id, t.at.v),
              .scale = graph.scalar(scale_id),
              .o = t.query_rows(o_id, t.at.o),
              .stats = t.statistics(lse_id),
              .query_lengths = lengths.queries,
              .key_lengths = lengths.keys});
}

// scale q k^T, the lowest float where masked.
DnnTensor scaled_scores(DnnGraph& graph, Tensors& t, const Lengths& lengths, bool causal, DnnTensor q,
                        DnnTensor k_transposed, DnnTensor scale) {
  const DnnTensor products = t.scores();
  DnnTensor x = t.scores();
  graph.matmul(q, k_transposed, products, lengths.queries, lengths.keys);
  graph.pointwise(CUDNN_POINTWISE_MUL, products, scale, x);
  if (lengths.keys == nullptr && !causal) return x;
  const cudnnDataType_t boolean = CUDNN_DATA_BOOLEAN;
  const DnnTensor lowest_float = graph.scalar(lowest_id);
  const auto places = [&](int64_t axis) {
    const DnnTensor y = t.scores(CUDNN_DATA_INT32);
    graph.index(x, axis, y);
    return y;
  };
  const auto compare = [&](cudnnPointwiseMode_t mode, DnnTensor a, DnnTensor b) {
    const DnnTensor y = t.scores(boolean);
    graph.pointwise(mode, a, b, y, boolean);
    return y;
  };
  const auto keep = [&](DnnTensor where) {
    const DnnTensor y = t.scores();
    graph.select(where, x, lowest_float, y);
    x = y;
  };
  if (lengths.keys != nullptr) {
    const DnnTensor query = places(2), key = places(3);
    const DnnTensor query_in = compare(CUDNN_POINTWISE_CMP_LT, query, lengths.queries);
    const DnnTensor key_in = compare(CUDNN_POINTWISE_CMP_LT, key, lengths.keys);
    keep(compare(CUDNN_POINTWISE_LOGICAL_AND, query_in, key_in));
  }
  if (causal) {
    const DnnTensor query = places(2), key = places(3);
    keep(compare(CUDNN_POINTWISE_CMP_GE, query, key));
  }
  return x;
}

// The forward pass in its parts, which cuDNN recognises as a whole: for versions without the operation above, and for
// causal masks, which that operation does not have.
void describe_forward_parts(DnnGraph& graph, Tensors t, const Masks& masks) {
  const Lengths lengths(t, masks);
  const DnnTensor x = scaled_scores(graph, t, lengths, masks.causal, t.query_rows(q_id, t.at.q),
                                    t.keys_transposed(k_id, t.at.k), graph.scalar(scale_id));
  const DnnTensor largest = t.inner_statistics(), shifted = t.scores(), e = t.scores(), sum = t.inner_statistics();
  const DnnTensor log_sum = t.inner_statistics(), p = t.scores(t.type());
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, x, largest);
  graph.pointwise(CUDNN_POINTWISE_SUB, x, largest, shifted);
  graph.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, e);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, log_sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, largest, log_sum, t.statistics(lse_id));
  graph.pointwise(CUDNN_POINTWISE_DIV, e, sum, p);
  graph.matmul(p, t.key_rows(v_id, t.at.v), t.query_rows(o_id, t.at.o), lengths.queries, nullptr, lengths.keys);
}

// The backward pass in the parts that cuDNN recognises. With a float32 sum for dq beside dq the blocks of keys add to
// it in the order in which they finish; without it ds is stored and dq computed from it in order.
void describe_backward(DnnGraph& graph, Tensors t, const Masks& masks, bool in_order) {
  const Lengths lengths(t, masks);
  const DnnTensor q = t.query_rows(q_id, t.at.q), d_o = t.query_rows(d_o_id, t.at.d_o);
  const DnnTensor k_transposed = t.keys_transposed(k_id, t.at.k), v_transposed = t.keys_transposed(v_id, t.at.v);
  const DnnTensor scale = graph.scalar(scale_id), delta = t.statistics(delta_id);
  {  // delta = sum_d(do o)
    const DnnTensor product = t.inner_query_rows(), sum = t.inner_statistics();
    graph.pointwise(CUDNN_POINTWISE_MUL, d_o, t.query_rows(o_id, t.at.o), product);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sum);
    graph.pointwise(CUDNN_POINTWISE_MUL, sum, graph.scalar(one_id), delta);
  }
  const DnnTensor x = scaled_scores(graph, t, lengths, masks.causal, q, k_transposed, scale);
  const DnnTensor relative = t.scores(), p = t.scores(), p_transposed = t.scores_transposed();
  graph.pointwise(CUDNN_POINTWISE_SUB, x, t.statistics(lse_id), relative);
  graph.pointwise(CUDNN_POINTWISE_EXP, relative, nullptr, p);
  graph.reshape(p, p_transposed);
  graph.matmul(p_transposed, d_o, t.key_rows(dv_id, t.at.dv), lengths.keys, nullptr, lengths.queries);
  // ds = scale p (dp - delta)
  const DnnTensor dp = t.scores(), centred = t.scores(), weighted = t.scores(), ds = t.scores();
  graph.matmul(d_o, v_transposed, dp, lengths.queries, lengths.keys);
  graph.pointwise(CUDNN_POINTWISE_SUB, dp, delta, centred);
  graph.pointwise(CUDNN_POINTWISE_MUL, centred, p, weighted);
  graph.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, ds);
  const DnnTensor ds_transposed = t.scores_transposed(), k = t.inner_key_rows(), dq = t.query_rows(dq_id, t.at.dq);
  graph.reshape(ds, ds_transposed);
  graph.matmul(ds_transposed, q, t.key_rows(dk_id, t.at.dk), lengths.keys, nullptr, lengths.queries);
  graph.reshape(k_transposed, k);
  if (in_order) {
    graph.matmul(ds, k, dq, lengths.queries, nullptr, lengths.keys);
  } else {
    const DnnTensor sum = t.query_sums(dq_sum_id);
    graph.matmul(ds, k, sum, lengths.queries, nullptr, lengths.keys);
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, nullptr, dq);
  }
}

// Before 9.15.1 the backward pass gives NaN where the lengths are no multiple of its tile and nothing is masked.
bool mask_needed(const Shape& s) { return cudnnGetVersion() < 91501 && (s.queries % 128 != 0 || s.keys % 128 != 0); }

constexpr int64_t most_workspace = int64_t{2} << 30;
// What the backward pass in order may store of dS at a time: little of a small card's memory.
int64_t most_stored_scores(const Cuda& cuda) {
  return std::min<int64_t>(int64_t{1} << 30, static_cast<int64_t>(cuda.device().totalGlobalMem / 32));
}

DnnKey key_of(Operation operation, bool parts, const Shape& s, const Places& at, lk_dtype dtype, const Masks& masks) {
  DnnKey key{static_cast<int64_t>(operation),
             parts,
             dtype,
             masks.lengths,
             masks.causal,
             s.batch,
             s.queries,
             s.keys,
             s.heads,
             s.key_heads,
             s.width};
  for (const Spacing& place : {at.q, at.k, at.v, at.o, at.d_o, at.dq, at.dk, at.dv})
    key.insert(key.end(), {place.item, place.row});
  return key;
}

const DnnPlan* forward_plan(Cuda& cuda, const Shape& s, const Places& at, lk_dtype dtype, const Masks& masks) {
  const cudnnDataType_t type = dnn_type(dtype);
  const auto describe = [&](auto&& graph_of) {
    return [&, graph_of](DnnGraph& graph) { graph_of(graph, Tensors(graph, s, at, type), masks); };
  };
  const DnnAccept accept{.workspace = most_workspace};
  for (const bool parts : {false, true}) {
    if (masks.causal && !parts) continue;
    const DnnKey key = key_of(Operation::attention, parts, s, at, dtype, masks);
    const DnnPlan* const plan =
        cuda.dnn().plan(key, describe(parts ? describe_forward_parts : describe_forward), accept);
    if (plan != nullptr) return plan;
  }
  return nullptr;
}

const DnnPlan* backward_plan(Cuda& cuda, const Shape& s, const Places& at, lk_dtype dtype, const Masks& masks,
                             bool in_order) {
  const Operation operation = in_order ? Operation::attention_backward_in_order : Operation::attention_backward;
  const DnnKey key = key_of(operation, true, s, at, dtype, masks);
  return cuda.dnn().plan(
      key, [&](DnnGraph& graph) { describe_backward(graph, Tensors(graph, s, at, dnn_type(dtype)), masks, in_order); },
      {.workspace = most_workspace});
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
Shape shape(const Params& p, bool repeated) {
  const int64_t heads = p.q.dims[2];
  return {p.q.dims[0], p.q.dims[1], p.k.dims[1], heads, repeated ? heads : p.k.dims[2], p.q.dims[3]};
}

template <class Params>
Places places(const Params& p, bool repeated) {
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
  LengthValues(Cuda& cuda, const Shape& s, const Masks& masks, const int32_t* given, int64_t spacing) {
    if (!masks.lengths) return;
    queries = cuda.scratch<int32_t>(s.batch * spacing);
    keys = cuda.scratch<int32_t>(s.batch * spacing);
    write_lengths(cuda, given, s.batch, s.queries, s.keys, spacing, queries, keys);
  }
};

bool attention_by_cudnn(Cuda& cuda, const lk_attention_params& p) {
  if (!suits_cudnn(cuda, p, 512, {&p.q, &p.k, &p.v, &p.o, &p.lse})) return false;
  const Masks masks{present(p.key_lengths) || present(p.key_mask), p.causal != 0};
  bool repeated = false;
  const DnnPlan* plan = forward_plan(cuda, shape(p, repeated), places(p, repeated), p.q.dtype, masks);
  if (plan == nullptr && group(p) > 1) {
    repeated = true;
    plan = forward_plan(cuda, shape(p, repeated), places(p, repeated), p.q.dtype, masks);
  }
  if (plan == nullptr) return cuda.passes_over("cuDNN", "it has no plan for this");
  const Shape s = shape(p, repeated);
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
Shape in_order_slice(const Cuda& cuda, const Shape& all) {
  const int64_t most = most_stored_scores(cuda);
  const int64_t plane = ceil_div(all.queries, 128) * ceil_div(all.keys, 128) * 128 * 128 * 2;
  Shape slice = all;
  if (all.batch * all.heads * plane <= most) return slice;
  slice.batch = 1;
  while (slice.heads > 1 && (all.heads % slice.heads != 0 || slice.heads * plane > most)) --slice.heads;
  slice.key_heads = slice.heads;
  return slice;
}

bool attention_backward_by_cudnn(Cuda& cuda, const lk_attention_backward_params& p) {
  if (!suits_cudnn(cuda, p, 256, {&p.q, &p.k, &p.v, &p.o, &p.d_o, &p.dq, &p.dk, &p.dv, &p.lse})) return false;
  const bool in_order = !cuda.fast(), some_seen = present(p.key_lengths) || present(p.key_mask);
  const Shape all = shape(p, true);
  const Masks masks{some_seen || mask_needed(all), p.causal != 0};
  const Shape slice = in_order ? in_order_slice(cuda, all) : all;
  Places at = places(p, true);
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
  if (!attention_by_cudnn(cuda, p)) attention_by_kernels(cuda, p);
  o.store(cuda);
}

void attention_backward_dense(Cuda& cuda, lk_attention_backward_params p) {
  for (lk_tensor* const t : {&p.d_o, &p.q, &p.k, &p.v, &p.o}) *t = dense_copy(cuda, *t);
  const DenseOutput dq(cuda, p.dq), dk(cuda, p.dk), dv(cuda, p.dv);
  p.dq = dq.tensor(), p.dk = dk.tensor(), p.dv = dv.tensor();
  if (!attention_backward_by_cudnn(cuda, p)) attention_backward_by_kernels(cuda, p);
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
                   if (!attention_by_cudnn(cuda, p)) attention_dense(cuda, p);
                 });
}

void attention_backward(Cuda& cuda, const lk_attention_backward_params& p) {
  named_failures([&] { return name("attention_backward", p); },
                 [&] {
                   if (attention_backward_on_hopper(cuda, p) || attention_backward_wide_on_hopper(cuda, p)) return;
                   if (attention_backward_by_cudnn(cuda, p)) return;
                   attention_backward_dense(cuda, p);
                 });
}

}  // namespace lk::cuda
