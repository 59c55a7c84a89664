#include "passes/pointwise_program.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"

namespace lh {
namespace {

struct Kind {
  const OpDef* op;
  int32_t kind;
};

constexpr Kind unary_kinds[] = {
    {&silu_op, LK_SILU},     {&sigmoid_op, LK_SIGMOID}, {&tanh_op, LK_TANH},   {&relu_op, LK_RELU},
    {&exp_op, LK_EXP},       {&sqrt_op, LK_SQRT},       {&rsqrt_op, LK_RSQRT}, {&abs_op, LK_ABS},
    {&sign_op, LK_SIGN},     {&square_op, LK_SQUARE},   {&sin_op, LK_SIN},     {&cos_op, LK_COS},
    {&log_op, LK_LOG},       {&floor_op, LK_FLOOR},     {&ceil_op, LK_CEIL},   {&round_op, LK_ROUND},
    {&affine_op, LK_AFFINE}, {&clamp_op, LK_CLAMP},
};
constexpr Kind binary_kinds[] = {
    {&add_op, LK_ADD},
    {&sub_op, LK_SUB},
    {&mul_op, LK_MUL},
    {&div_op, LK_DIV},
    {&max_op, LK_MAX},
    {&min_op, LK_MIN},
    {&equal_op, LK_EQUAL},
    {&less_op, LK_LESS},
    {&greater_op, LK_GREATER},
    {&less_equal_op, LK_LESS_EQUAL},
    {&greater_equal_op, LK_GREATER_EQUAL},
};

std::optional<int32_t> kind_of(std::span<const Kind> kinds, const OpDef* op) {
  const auto found = std::ranges::find(kinds, op, &Kind::op);
  return found == kinds.end() ? std::nullopt : std::optional(found->kind);
}

std::optional<int32_t> unary_kind(const Node& node) {
  return node.op == &gelu_op ? std::optional(gelu_kind(node.attrs)) : kind_of(unary_kinds, node.op);
}

std::optional<int32_t> binary_kind(const Node& node) { return kind_of(binary_kinds, node.op); }

bool plain_float(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }
bool loaded_type(DType dtype) { return plain_float(dtype) || dtype == DType::i32 || dtype == DType::u8; }
bool narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// Between integers a cast has no float32 on its way.
bool cast_in_program(DType from, DType to) {
  return loaded_type(from) && loaded_type(to) && (plain_float(from) || plain_float(to));
}

bool with_codes(const OpDef* op) {
  return op == &quantize_blockwise_op || op == &dequantize_blockwise_op || op == &round_stochastic_op;
}

}  // namespace

bool pointwise_reduction(const Graph& graph, const Node& node) {
  if (node.op != &sum_op && node.op != &mean_op && node.op != &amax_op) return false;
  const Desc& x = graph.desc(node.inputs[0]);
  return plain_float(x.dtype) && x.shape.numel() > graph.desc(node.outputs[0]).shape.numel();
}

const Shape& pointwise_shape(const Graph& graph, const Node& node) {
  return graph.desc(pointwise_reduction(graph, node) ? node.inputs[0] : node.outputs[0]).shape;
}

bool pointwise_node(const Graph& graph, const Node& node) {
  const auto type = [&](size_t i) { return graph.desc(node.inputs[i]).dtype; };
  if (unary_kind(node)) return plain_float(type(0));
  if (binary_kind(node)) return plain_float(type(0)) && plain_float(type(1));
  if (node.op == &expand_op) return plain_float(type(0));
  if (node.op == &where_op) return loaded_type(type(0)) && plain_float(type(1)) && plain_float(type(2));
  if (node.op == &cast_op) return cast_in_program(type(0), graph.desc(node.outputs[0]).dtype);
  return with_codes(node.op) || pointwise_reduction(graph, node);
}

bool pointwise_reads(const Graph& graph, const Node& node, size_t i, const Node& maker) {
  if (maker.op == &quantize_blockwise_op || node.op == &dequantize_blockwise_op) return false;
  if (pointwise_reduction(graph, maker)) return false;
  if (node.op == &round_stochastic_op && i > 0) return false;  // the step
  return maker.op != &cast_op || plain_float(graph.desc(maker.outputs[0]).dtype);
}

int32_t PointwiseBuilder::load(Value x, Value scales, bool is_signed) {
  for (size_t i = 0; i < loads_.size(); ++i)
    if (loads_[i].x == x && loads_[i].scales == scales && loads_[i].is_signed == is_signed)
      return -1 - static_cast<int32_t>(i);
  loads_.push_back({x, scales, is_signed});
  return -static_cast<int32_t>(loads_.size());
}

int32_t PointwiseBuilder::value(Value v) {
  const auto found = values_.find(v);
  return found != values_.end() ? found->second : load(v);
}

int32_t PointwiseBuilder::emit(lk_pointwise_instruction instruction) {
  instructions_.push_back(instruction);
  return static_cast<int32_t>(instructions_.size()) - 1;
}

// As the op by itself stores it.
int32_t PointwiseBuilder::rounded(int32_t value, DType dtype) {
  if (!narrow(dtype)) return value;
  return emit({.code = LK_POINTWISE_ROUND, .kind = static_cast<int32_t>(dtype), .operands = {value}});
}

int32_t PointwiseBuilder::computed(const Node& node) {
  const DType type = graph_.desc(node.outputs[0]).dtype;
  if (const auto kind = unary_kind(node)) {
    lk_pointwise_instruction i{.code = LK_POINTWISE_UNARY, .kind = *kind, .operands = {value(node.inputs[0])}};
    const bool affine = node.op == &affine_op, clamp = node.op == &clamp_op;
    if (affine || clamp) {
      i.a = static_cast<float>(node.attrs.f(affine ? "scale" : "low"));
      i.b = static_cast<float>(node.attrs.f(affine ? "shift" : "high"));
    }
    return rounded(emit(i), type);
  }
  if (const auto kind = binary_kind(node)) {
    const int32_t a = value(node.inputs[0]), b = value(node.inputs[1]);
    return rounded(emit({.code = LK_POINTWISE_BINARY, .kind = *kind, .operands = {a, b}}), type);
  }
  if (node.op == &where_op) {
    const int32_t c = value(node.inputs[0]), a = value(node.inputs[1]), b = value(node.inputs[2]);
    return rounded(emit({.code = LK_POINTWISE_WHERE, .operands = {c, a, b}}), type);
  }
  if (node.op == &cast_op) return rounded(value(node.inputs[0]), type);
  if (node.op == &expand_op) return value(node.inputs[0]);
  if (node.op == &quantize_blockwise_op) return value(node.inputs[0]);
  if (node.op == &dequantize_blockwise_op) return load(node.inputs[0], node.inputs[1], node.attrs.i("is_signed") != 0);
  return emit({.code = LK_POINTWISE_STOCHASTIC,
               .operands = {value(node.inputs[0]), load(node.inputs[1])},
               .seed = static_cast<uint64_t>(node.attrs.i("seed")),
               .stream = static_cast<uint64_t>(node.attrs.i("stream"))});
}

void PointwiseBuilder::add(const Node& node) {
  codes_ |= with_codes(node.op);
  if (!pointwise_reduction(graph_, node)) values_[node.outputs[0]] = computed(node);
}

void PointwiseBuilder::store(const Node& node) {
  shape_ = pointwise_shape(graph_, node);
  if (pointwise_reduction(graph_, node)) return reduce(node);
  const bool codes = node.op == &quantize_blockwise_op;
  stores_.push_back({values_.at(node.outputs[0]), node.outputs[0], codes ? node.outputs[1] : Value{},
                     codes && node.attrs.i("is_signed") != 0, LK_POINTWISE_STORE, 1, 0});
}

void PointwiseBuilder::reduce(const Node& node) {
  const Shape& result = graph_.desc(node.outputs[0]).shape;
  int64_t axes = 0;
  for (int64_t axis = 0; axis < shape_.rank(); ++axis)
    if (shape_[axis] != result[axis]) axes |= int64_t{1} << axis;
  const double share = static_cast<double>(result.numel()) / static_cast<double>(shape_.numel());
  stores_.push_back({value(node.inputs[0]),
                     node.outputs[0],
                     {},
                     false,
                     node.op == &amax_op ? LK_POINTWISE_MAX : LK_POINTWISE_SUM,
                     node.op == &mean_op ? static_cast<float>(share) : 1.0f,
                     axes});
}

std::optional<Node> PointwiseBuilder::finish(const std::map<Value, Value>& replaces, int32_t scope) const {
  if (loads_.empty() || loads_.size() > LK_POINTWISE_MAX_INPUTS || stores_.size() > LK_POINTWISE_MAX_OUTPUTS ||
      instructions_.size() > LK_POINTWISE_MAX_INSTRUCTIONS)
    return std::nullopt;
  if (codes_ && std::ranges::any_of(stores_, [](const Store& s) { return s.reduction != LK_POINTWISE_STORE; }))
    return std::nullopt;
  Node node{&pointwise_op, {}, {}, {}, scope};
  PointwiseAttrs attrs{.shape = shape_};
  const auto number = [&](int32_t value) {
    return value < 0 ? -1 - value : static_cast<int32_t>(loads_.size()) + value;
  };
  const auto result = [&](Value v, bool reduced) {
    node.outputs.push_back(v);
    attrs.dtypes.push_back(graph_.desc(v).dtype);
    // At the place of the result what it may be stored over, if that is read here: each at its own element.
    const auto over = replaces.find(v);
    const bool reads =
        !reduced && over != replaces.end() && graph_.desc(over->second) == graph_.desc(v) &&
        std::ranges::any_of(loads_,
                            [&](const Load& load) { return load.x == over->second || load.scales == over->second; }) &&
        std::ranges::find(node.inputs, over->second) == node.inputs.end();
    node.inputs.push_back(reads ? over->second : Value{});
    return node.outputs.size() - 1;
  };
  for (const Store& store : stores_) {
    const bool reduced = store.reduction != LK_POINTWISE_STORE;
    PointwiseAttrs::Output output{number(store.value), result(store.y, reduced), std::nullopt,
                                  store.is_signed,     store.reduction,          store.scale,
                                  store.axes};
    if (store.scales) output.scales = result(store.scales, false);
    attrs.outputs.push_back(output);
  }
  const auto place = [&](Value v) {
    const auto found = std::ranges::find(node.inputs, v);
    if (found != node.inputs.end()) return static_cast<size_t>(found - node.inputs.begin());
    node.inputs.push_back(v);
    return node.inputs.size() - 1;
  };
  for (const Load& load : loads_) {
    PointwiseAttrs::Input input{place(load.x), std::nullopt, load.is_signed};
    if (load.scales) input.scales = place(load.scales);
    attrs.inputs.push_back(input);
  }
  for (lk_pointwise_instruction instruction : instructions_) {
    for (int32_t& operand : instruction.operands) operand = number(operand);
    attrs.instructions.push_back(instruction);
  }
  node.attrs = attrs.encoded();
  return node;
}

}  // namespace lh
