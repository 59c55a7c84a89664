// The list of ops.
#include "ops/ops.h"

#include <array>
#include <numeric>

#include "core/error.h"

namespace lh {

const OpDef* find_op(std::string_view name) {
  // One to a line.
  // clang-format off
  static const std::array all{
      &linear_op,
      &conv2d_op,
      &conv3d_op,
      &matmul_op,
      &newton_schulz_op,
      &embedding_op,
      &attention_op,
      &softmax_op,
      &rope_op,
      &timestep_embedding_op,
      &layer_norm_op,
      &rms_norm_op,
      &group_norm_op,
      &silu_op,
      &gelu_op,
      &sigmoid_op,
      &tanh_op,
      &relu_op,
      &exp_op,
      &sqrt_op,
      &rsqrt_op,
      &abs_op,
      &sign_op,
      &square_op,
      &sin_op,
      &cos_op,
      &log_op,
      &floor_op,
      &ceil_op,
      &round_op,
      &affine_op,
      &clamp_op,
      &add_op,
      &sub_op,
      &mul_op,
      &div_op,
      &max_op,
      &min_op,
      &equal_op,
      &less_op,
      &less_equal_op,
      &greater_op,
      &greater_equal_op,
      &where_op,
      &reshape_op,
      &detach_op,
      &permute_op,
      &concat_op,
      &split_op,
      &slice_op,
      &pad_op,
      &every_op,
      &expand_op,
      &cast_op,
      &gather_op,
      &take_op,
      &top_k_op,
      &find_first_op,
      &upsample_nearest2x_op,
      &sum_op,
      &mean_op,
      &amax_op,
      &mse_op,
      &huber_op,
      &adamw_update_op,
      &quantize_blockwise_op,
      &dequantize_blockwise_op,
      &round_stochastic_op,
  };
  // clang-format on
  for (const OpDef* op : all)
    if (name == op->name) return op;
  return nullptr;
}

const Desc& required(const Infer& a, size_t index) {
  if (index >= a.in.size() || a.in[index] == nullptr) fail(Code::plugin, "input {} is missing", index);
  return *a.in[index];
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw Error(Code::plugin, what);
}

void expect_weight(const Desc& weight, const char* name) {
  const bool whole = weight.dtype == DType::i32 || weight.dtype == DType::i64 || weight.dtype == DType::u8;
  expect(!whole, fmt::format("{} must be floating, is {}", name, weight.text()));
}

int64_t axis_of(const Desc& x, int64_t axis) {
  const int64_t rank = x.shape.rank();
  expect(axis >= -rank && axis < rank, fmt::format("axis {} is outside rank {}", axis, rank));
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast(std::initializer_list<const Desc*> inputs) {
  std::vector<int64_t> dims;
  for (const Desc* input : inputs) {
    const auto add = input->shape.dims();
    if (add.size() > dims.size()) dims.insert(dims.begin(), add.size() - dims.size(), 1);
    for (size_t i = 0; i < add.size(); ++i) {
      int64_t& dim = dims[dims.size() - add.size() + i];
      expect(add[i] == dim || add[i] == 1 || dim == 1,
             "shapes do not broadcast: " + Shape(dims).text() + " and " + input->shape.text());
      if (dim == 1) dim = add[i];
    }
  }
  return Shape(std::move(dims));
}

Value optional(const Gradient& g, size_t index) { return index < g.input_count() ? g.in(index) : Value{}; }

lk_products products_of(const Attrs& attrs) {
  return attrs.has(products_attr) ? static_cast<lk_products>(attrs.i(products_attr)) : LK_PRODUCTS_WIDE;
}

void take_products(const Attrs& layer, Attrs& backward) {
  if (layer.has(products_attr)) backward.set(products_attr, layer.i(products_attr));
}

void emit_needed(Gradient& g, const OpDef& backward, Attrs attrs, Value added) {
  constexpr std::array names{"dx", "dweight", "dbias"};
  for (size_t i = 0; i < names.size(); ++i) attrs.set(names[i], int64_t{g.needs(i)});
  std::vector<Value> inputs{g.dout(), g.in(0), optional(g, 1), optional(g, 2)};
  if (const Value scale = optional(g, 3)) inputs.push_back(scale);
  if (added) inputs.push_back(added);
  const std::vector<Value> d = g.emit_all(backward, std::move(inputs), std::move(attrs));
  size_t next = 0;
  for (size_t i = 0; i < names.size(); ++i)
    if (g.needs(i)) g.set(i, d[next++]);
}

std::vector<Desc> infer_needed(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("dx") != 0) out.push_back(required(a, 1));
  if (a.attrs.i("dweight") != 0) out.push_back(required(a, 2));
  if (a.attrs.i("dbias") != 0) out.push_back(required(a, 3));
  return out;
}

Value reduce_to(Gradient& g, Value gradient, Value like) {
  const Shape want = g.shape(like);
  Value result = gradient;
  if (g.shape(result) != want) {
    // Right-align: leading axes that `like` lacks, and axes where it has 1, are summed.
    const Shape have = g.shape(result);
    std::vector<int64_t> axes;
    for (int64_t i = 0; i < have.rank(); ++i) {
      const int64_t j = i - (have.rank() - want.rank());
      if (j < 0 || (want[j] == 1 && have[i] != 1)) axes.push_back(i);
    }
    result = g.emit(sum_op, {result}, {{"axes", axes}});
    result = g.emit(reshape_op, {result}, {{"shape", g.dims(like)}});
  }
  return g.cast_like(result, like);
}

}  // namespace lh
