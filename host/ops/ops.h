// Every op the host knows, one object each, defined in the file that the banner names. Ops of the catalogue
// (sdk/ops.yaml) can be used by plugins; the others are made by host passes.
#pragma once

#include "core/error.h"
#include "graph/op.h"

namespace lh {

// linear.cpp, lora.cpp, matmul.cpp, newton_schulz.cpp, convolution.cpp, channels_last.cpp, embedding.cpp
extern const OpDef linear_op, linear_backward_op, lora_op, lora_backward_op, matmul_op, newton_schulz_op, conv2d_op,
    conv2d_backward_op, conv3d_op, conv3d_backward_op, to_channels_last_op, from_channels_last_op, embedding_op;
// attention.cpp, softmax.cpp, rope.cpp, timestep_embedding.cpp
extern const OpDef attention_op, attention_backward_op, softmax_op, softmax_backward_op, rope_op, timestep_embedding_op;
// layer_norm.cpp, rms_norm.cpp, group_norm.cpp
extern const OpDef layer_norm_op, layer_norm_backward_op, rms_norm_op, rms_norm_backward_op, group_norm_op,
    group_norm_backward_op;
// modulated_norm.cpp, rms_norm_rope.cpp, gated_residual.cpp, gated_activation.cpp
extern const OpDef modulated_norm_op, modulated_norm_backward_op, rms_norm_rope_op, rms_norm_rope_backward_op,
    gated_residual_op, gated_residual_backward_op, gated_activation_op, gated_activation_backward_op;
// unary.cpp
extern const OpDef silu_op, gelu_op, sigmoid_op, tanh_op, relu_op, exp_op, sqrt_op, rsqrt_op, abs_op, sign_op,
    square_op, sin_op, cos_op, log_op, floor_op, ceil_op, round_op, affine_op, clamp_op, unary_backward_op;
// binary.cpp, where.cpp
extern const OpDef add_op, sub_op, mul_op, div_op, max_op, min_op, equal_op, less_op, less_equal_op, greater_op,
    greater_equal_op, where_op;
// reshape.cpp, permute.cpp, copy_block.cpp, expand.cpp, cast.cpp, gather.cpp, top_k.cpp, find_first.cpp,
// upsample_nearest2x.cpp
extern const OpDef reshape_op, detach_op, permute_op, concat_op, split_op, slice_op, pad_op, every_op, expand_op,
    cast_op, weight_values_op, gather_op, take_op, gather_backward_op, top_k_op, top_k_backward_op, find_first_op,
    upsample_nearest2x_op, upsample_nearest2x_backward_op;
// reduce_sum.cpp, amax.cpp, loss.cpp
extern const OpDef sum_op, mean_op, amax_op, mse_op, huber_op, loss_op, loss_backward_op;
// adamw.cpp, dropout_mask.cpp, fetch.cpp, offload.cpp
extern const OpDef adamw_update_op, dropout_mask_op, fetch_op, offer_op, offload_op, landed_op;
// blockwise.cpp, round_stochastic.cpp, pointwise.cpp
extern const OpDef quantize_blockwise_op, dequantize_blockwise_op, round_stochastic_op, pointwise_op;

// Shape-rule helpers: failures are lh::Error(Code::plugin); Graph::add puts op, scope and input shapes in front.
const Desc& required(const Infer& a, size_t index);
void expect(bool condition, const std::string& what);
// Of what holds weights, in whatever type of numbers or of fewer bits: no integers.
void expect_weight(const Desc& weight, const char* name);
// Axis in [0, rank), negative ones counted from the end.
int64_t axis_of(const Desc& x, int64_t axis);

// The shape that all of them have when they are repeated to fit each other, right-aligned.
Shape broadcast(std::initializer_list<const Desc*> inputs);

// A split or a slice: its results are pieces of what it is given.
bool is_cut(const Node& node);
// A copy beside the operations, or a place where one is waited for: fetch, offer, offload, landed.
bool is_transfer(const Node& node);

// The kernel's name of the attribute `mode` of gelu.
lk_unary_kind gelu_kind(const Attrs& attrs);

// The attribute of layers that multiply with their weight in other numbers than x's (passes/products.h), and its
// value, or that of its absence.
inline constexpr const char* products_attr = "products";
lk_products products_of(const Attrs& attrs);
void take_products(const Attrs& layer, Attrs& backward);  // of its backward op, the same

// Optional input of a node, 0 when it is absent.
Value optional(const Gradient& g, size_t index);

// Ops of x, weight and bias: their backward ops read (dy, x, weight, bias) and give only the gradients that are needed,
// which the attributes dx, dweight and dbias name. The scale of a weight, where there is one, is the next input of
// both; it is never trained.
void emit_needed(Gradient& g, const OpDef& backward, Attrs attrs = {}, Value added = {});
std::vector<Desc> infer_needed(const Infer& a);
template <typename Params>
void bind_backward(const Launch& l, Params& p) {
  size_t next = 0;
  p.dy = l.in[0];
  p.x = l.in[1];
  p.weight = l.in[2];
  if (l.attrs.i("dx") != 0) p.dx = l.out[next++];
  if (l.attrs.i("dweight") != 0) p.dweight = l.out[next++];
  if constexpr (requires { p.dbias; })
    if (l.attrs.i("dbias") != 0) p.dbias = l.out[next++];
  if constexpr (requires { p.weight_scale; })
    if (l.in.size() > 4) p.weight_scale = l.in[4];
  if constexpr (requires { p.added; })
    if (l.in.size() > 4) p.added = l.in[4];
}

// Gradient helper: sums `gradient` down to the shape of `like` (the reverse of broadcasting) and gives it like's type.
Value reduce_to(Gradient& g, Value gradient, Value like);

}  // namespace lh
