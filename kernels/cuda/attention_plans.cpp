#include "cuda/attention_plans.h"

#include "cuda/dnn_graph.h"

namespace lk::cuda {

namespace {

enum class Operation : int64_t { attention = 1, attention_backward, attention_backward_in_order };

// The descriptions of the tensors of one call.
class Tensors {
 public:
  Tensors(DnnGraph& graph, const AttentionShape& s, const AttentionPlaces& at, cudnnDataType_t type)
      : at(at), graph_(graph), s_(s), type_(type) {}

  const AttentionPlaces& at;
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
  const AttentionShape& s_;
  cudnnDataType_t type_;
};

// Both nullptr where there are none.
struct Lengths {
  DnnTensor queries = nullptr, keys = nullptr;
  Lengths(Tensors& t, const AttentionMasks& masks) {
    if (!masks.lengths) return;
    queries = t.lengths(query_lengths_id);
    keys = t.lengths(key_lengths_id);
  }
};

void describe_forward(DnnGraph& graph, Tensors t, const AttentionMasks& masks) {
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
void describe_forward_parts(DnnGraph& graph, Tensors t, const AttentionMasks& masks) {
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
void describe_backward(DnnGraph& graph, Tensors t, const AttentionMasks& masks, bool in_order) {
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

constexpr int64_t usual_workspace = int64_t{2} << 30;
// ds of one head, which is the least that is stored at a time, may take more by itself.
constexpr int64_t most_workspace = int64_t{8} << 30;
DnnKey key_of(Operation operation, bool parts, const AttentionShape& s, const AttentionPlaces& at, lk_dtype dtype,
              const AttentionMasks& masks) {
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

}  // namespace

bool mask_needed(const AttentionShape& s) {
  return cudnnGetVersion() < 91501 && (s.queries % 128 != 0 || s.keys % 128 != 0);
}

const DnnPlan* forward_plan(Cuda& cuda, const AttentionShape& s, const AttentionPlaces& at, lk_dtype dtype,
                            const AttentionMasks& masks) {
  const cudnnDataType_t type = dnn_type(dtype);
  const auto describe = [&](auto&& graph_of) {
    return [&, graph_of](DnnGraph& graph) { graph_of(graph, Tensors(graph, s, at, type), masks); };
  };
  const DnnAccept accept{.workspace = usual_workspace};
  for (const bool parts : {false, true}) {
    if (masks.causal && !parts) continue;
    const DnnKey key = key_of(Operation::attention, parts, s, at, dtype, masks);
    const DnnPlan* const plan =
        cuda.dnn().plan(key, describe(parts ? describe_forward_parts : describe_forward), accept);
    if (plan != nullptr) return plan;
  }
  return nullptr;
}

const DnnPlan* backward_plan(Cuda& cuda, const AttentionShape& s, const AttentionPlaces& at, lk_dtype dtype,
                             const AttentionMasks& masks, bool in_order) {
  const Operation operation = in_order ? Operation::attention_backward_in_order : Operation::attention_backward;
  const DnnKey key = key_of(operation, true, s, at, dtype, masks);
  return cuda.dnn().plan(
      key, [&](DnnGraph& graph) { describe_backward(graph, Tensors(graph, s, at, dnn_type(dtype)), masks, in_order); },
      {.workspace = in_order && s.heads == 1 ? most_workspace : usual_workspace});
}

}  // namespace lk::cuda
