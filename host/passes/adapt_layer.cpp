#include "passes/adapt_layer.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "graph/op.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr size_t weight_input = 1, bias_input = 2, scale_input = 3;

std::vector<int64_t> dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

AdapterLayer described(const Graph& graph, const Node& node, const std::string& module, const AdapterSpec& spec,
                       bool training) {
  AdapterLayer layer{.module = module,
                     .weight = graph.desc(node.inputs[weight_input]).shape,
                     .rank = spec.rank,
                     .alpha = spec.alpha,
                     .dropout = training ? spec.dropout : 0,
                     .rank_dropout = training ? spec.rank_dropout : 0};
  if (node.op != &conv2d_op) return layer;
  layer.stride = node.attrs.i("stride");
  std::ranges::copy(node.attrs.list("pad"), layer.pad.begin());
  return layer;
}

// A plain pair, for graphs that are built without a plugin. Down begins Kaiming uniform with a = sqrt(5), as
// torch.nn.Linear and torch.nn.Conv2d do: U(-1/sqrt(n), 1/sqrt(n)) for n inputs of an output.
std::vector<AdapterTensorSpec> plain_pair(const AdapterLayer& layer) {
  const Shape down = layer.weight.with(0, layer.rank), up{layer.weight[0], layer.rank};
  const double bound = 1 / std::sqrt(static_cast<double>(down.numel() / down[0]));
  return {{down_key, TensorRole::down, down, {InitialValue::Kind::uniform, bound}},
          {up_key, TensorRole::up, layer.is_conv() ? Shape{up[0], up[1], 1, 1} : up}};
}

}  // namespace

std::string adaptable_module(const Graph& graph, const Node& node, const std::map<Value, Value>& reordered) {
  if (node.op != &linear_op && node.op != &conv2d_op) return {};
  if (node.op == &conv2d_op && node.attrs.i("groups") != 1) return {};
  const auto source = reordered.find(node.inputs[weight_input]);
  const ValueInfo& weight = graph.info(source == reordered.end() ? node.inputs[weight_input] : source->second);
  return weight.kind == ValueKind::param ? module_of(weight.name) : std::string();
}

LayerAdapter::LayerAdapter(AdaptContext& context, const Node& node, const std::string& module, const AdapterSpec& spec)
    : context_(context),
      graph_(context.graph),
      node_(node),
      spec_(spec),
      layer_(described(context.graph, node, module, spec, context.training)) {}

AdaptedModule LayerAdapter::run() {
  using Kind = AdapterForm::Kind;
  const AdapterRule* rule = spec_.rule;
  const AdapterForm form = rule != nullptr ? rule->form(layer_)
                                           : AdapterForm{.kind = Kind::pair,
                                                         .scale = spec_.alpha / static_cast<double>(spec_.rank),
                                                         .rank = spec_.rank,
                                                         .alpha = spec_.alpha};
  AdaptedModule module{.name = layer_.module,
                       .tensors = {},
                       .rank = form.rank,
                       .alpha = form.alpha,
                       .rule = rule,
                       .layer = layer_,
                       .form = form};
  if (form.kind == Kind::none) return module;
  AdapterRule::Values values;
  for (AdapterTensorSpec& tensor : rule != nullptr ? rule->tensors(layer_) : plain_pair(layer_)) {
    const Value v = graph_.add_param(layer_.module + "." + tensor.key, {DType::f32, tensor.shape});
    values[tensor.key] = v;
    module.tensors.push_back({v, std::move(tensor.key), tensor.role, tensor.initial});
  }
  const size_t first = graph_.nodes.size();
  Value result;
  if (form.kind == Kind::pair) {
    Value down = module.tensors.at(0).value, up = module.tensors.at(1).value;
    if (layer_.is_conv()) graph_.info(down).channels_last = true;
    if (form.from_start) std::tie(down, up) = from_start(down, up);
    const double scale = form.scale * spec_.strength;
    result = layer_.is_conv() ? conv_pair(down, up, scale) : linear_pair(down, up, scale);
  } else {
    result = form.kind == Kind::output ? by_output(values) : by_weight(values);
  }
  take_over(first, result);
  return module;
}

Value LayerAdapter::emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs) {
  return graph_.add(op, std::move(inputs), std::move(attrs), node_.scope)[0];
}

Value LayerAdapter::cast_to(Value v, DType dtype) {
  return graph_.desc(v).dtype == dtype ? v : emit(cast_op, {v}, {{"dtype", static_cast<int64_t>(dtype)}});
}

Value LayerAdapter::base_output() { return emit(*node_.op, node_.inputs, node_.attrs); }

Value LayerAdapter::base_weight() {
  Value weight = input(weight_input);
  if (const auto source = context_.reordered.find(weight); source != context_.reordered.end())
    weight = source->second;
  else if (graph_.info(weight).channels_last)
    weight = emit(from_channels_last_op, {weight});
  const Value scale = layer_.is_conv() ? Value{} : input(scale_input);
  return scale ? emit(weight_values_op, {weight, scale}) : cast_to(weight, DType::f32);
}

Value LayerAdapter::mask(Shape shape, double p) {
  const auto known = graph_.inputs.find("step");
  const Value step = known != graph_.inputs.end() ? known->second : graph_.add_input("step", {DType::i32, {1}});
  return emit(
      dropout_mask_op, {step},
      {{"shape", dims_of(shape)}, {"p", p}, {"seed", static_cast<int64_t>(spec_.seed)}, {"stream", context_.masks++}});
}

Value LayerAdapter::keep(Shape shape, double p) { return cast_to(emit(sign_op, {mask(shape, p)}), DType::f32); }

// Of each number; of each rank in each sample (sd-scripts' rank_dropout, made up for); of the whole module.
Value LayerAdapter::pair_mask(Shape inner) {
  if (!context_.training) return {};
  Value product;
  const auto times = [&](Value factors) { product = product ? emit(mul_op, {product, factors}) : factors; };
  if (spec_.dropout > 0) times(mask(inner, spec_.dropout));
  if (spec_.rank_dropout > 0) {
    Shape row = inner;
    for (int64_t axis = 1; axis + 1 < inner.rank(); ++axis) row = row.with(axis, 1);
    times(mask(row, spec_.rank_dropout));
  }
  if (spec_.module_dropout > 0) times(computed(keep({1}, spec_.module_dropout)));
  if (!product || graph_.desc(product).shape == inner) return product;
  std::vector<int64_t> ones(static_cast<size_t>(inner.rank()), 1);
  if (graph_.desc(product).shape.rank() != inner.rank())
    product = emit(reshape_op, {product}, {{"shape", std::move(ones)}});
  return emit(expand_op, {product}, {{"shape", dims_of(inner)}});
}

std::pair<Value, Value> LayerAdapter::from_start(Value down, Value up) {
  const auto start = [&](Value v) {
    const ValueInfo info = graph_.info(v);
    const Value kept = graph_.add_param(start_name(info.name), info.desc);
    graph_.info(kept).channels_last = info.channels_last;
    return kept;
  };
  const Value down_0 = start(down), up_0 = start(up);
  const auto joined = [&](Value a, Value b, int64_t axis) { return emit(concat_op, {a, b}, {{"axis", axis}}); };
  return {joined(down, emit(sub_op, {down, down_0}), 0), joined(emit(sub_op, {up, up_0}), up_0, 1)};
}

Value LayerAdapter::linear_pair(Value down, Value up, double scale) {
  const Shape inner = graph_.desc(input(0)).shape.with(-1, graph_.desc(down).shape[0]);
  const Value factors = pair_mask(inner);
  Attrs attrs = node_.attrs;
  attrs.set("scale", scale);
  return emit(lora_op, {input(0), input(weight_input), input(bias_input), down, up, factors, input(scale_input)},
              std::move(attrs));
}

// The layer's own kernel, stride and padding in `down`, then a 1x1 convolution.
Value LayerAdapter::conv_pair(Value down, Value up, double scale) {
  const Shape shape = graph_.desc(up).shape;
  const Value base = base_output();
  Value inner = emit(conv2d_op, {input(0), computed(down), {}}, node_.attrs);  // [N, H, W, rank]
  if (const Value factors = pair_mask(graph_.desc(inner).shape)) inner = emit(mul_op, {inner, factors});
  const Value matrix = emit(reshape_op, {computed(emit(affine_op, {up}, {{"scale", scale}, {"shift", 0.0}}))},
                            {{"shape", std::vector<int64_t>{shape[0], shape[1]}}});
  return emit(add_op, {base, emit(linear_op, {inner, matrix, {}})});
}

Value LayerAdapter::by_output(const AdapterRule::Values& tensors) {
  const Value base = base_output();
  AdapterRule::Values given = tensors;
  given.insert({{"x", input(0)}, {"y", base}});
  const Value adapted = built([&] { return spec_.rule->build_output(graph_, layer_, given, node_.scope); });
  return unless_dropped(at_strength(adapted, base), base);
}

Value LayerAdapter::unless_dropped(Value adapted, Value base) {
  if (!drops_module()) return adapted;
  return emit(where_op, {cast_to(keep({1}, spec_.module_dropout), DType::i32), adapted, base});
}

Value LayerAdapter::at_strength(Value adapted, Value base) {
  if (spec_.strength == 1) return adapted;
  return emit(add_op, {base, scaled(emit(sub_op, {adapted, base}), spec_.strength)});
}

Value LayerAdapter::scaled(Value v, double factor) {
  return factor == 1 ? v : emit(affine_op, {v}, {{"scale", factor}, {"shift", 0.0}});
}

// A linear layer is applied factor by factor where that is what its weight is made of. Otherwise in half precision the
// change of the weight is a layer of its own: added to the weight, all of it that is smaller than a step of the
// weight's type would be lost.
Value LayerAdapter::by_weight(const AdapterRule::Values& tensors) {
  const Value weight = base_weight();
  AdapterRule::Values given = tensors;
  given.insert({"weight", weight});
  const size_t first = graph_.nodes.size();
  const Value adapted = built([&] { return spec_.rule->build_weight(graph_, layer_, given, node_.scope); });
  const DType type = graph_.desc(input(0)).dtype;
  const FrozenWeight base{.weight = weight, .computed = [&] {
                            const bool as_it_is = graph_.desc(input(weight_input)).dtype == type;
                            return as_it_is ? input(weight_input) : cast_to(weight, type);
                          }};
  if (const auto factors = factor_weight(graph_, first, adapted, base, node_.scope)) {
    const Value result = by_factors(*factors);
    if (!drops_module() && spec_.strength == 1) return result;
    const Value alone = base_output();
    return unless_dropped(at_strength(result, alone), alone);
  }
  if (type == DType::f32) return layer_with(unless_dropped(at_strength(adapted, weight), weight), input(bias_input));
  Value change = scaled(emit(sub_op, {adapted, weight}), spec_.strength);
  if (drops_module()) change = emit(mul_op, {change, keep({1}, spec_.module_dropout)});
  const Value alone = base_output();
  return emit(add_op, {alone, layer_with(computed(change), {})});
}

// Factors of inputs and outputs multiply in float32, rounded once: in fewer bits their small changes would be lost.
Value LayerAdapter::by_factors(const FactoredWeight& f) {
  const auto times = [&](Value v, Value factors, Value bias) {
    Value product =
        emit(mul_op, {cast_to(v, DType::f32), emit(reshape_op, {factors}, {{"shape", std::vector<int64_t>{-1}}})});
    if (bias) product = emit(add_op, {product, cast_to(bias, DType::f32)});
    return computed(product);
  };
  const Value x = f.columns ? times(input(0), f.columns, {}) : input(0), bias = input(bias_input);
  const Value own_bias = f.rows ? Value{} : bias, weight = input(weight_input), scale = input(scale_input);
  Value y;
  if (f.up) {
    Attrs attrs = node_.attrs;
    attrs.set("scale", f.scale);
    y = emit(lora_op, {x, weight, own_bias, f.down, f.up, {}, scale}, std::move(attrs));
  } else {
    y = emit(linear_op, {x, weight, own_bias, scale}, node_.attrs);
  }
  return f.rows ? times(y, f.rows, bias) : y;
}

Value LayerAdapter::layer_with(Value weight, Value bias) {
  if (!layer_.is_conv()) return emit(linear_op, {input(0), weight, bias});
  return emit(conv2d_op, {input(0), emit(to_channels_last_op, {weight}), bias}, node_.attrs);
}

Value LayerAdapter::mask_for(const std::string& input, Desc desc) {
  const double rate = input == "keep.rank" ? spec_.rank_dropout : input == "keep.element" ? spec_.dropout : 0;
  if (rate == 0 || !context_.training)
    fail(Code::plugin, "network.type: the adapter of {} asks for an input '{}', which it has none of here",
         layer_.module, input);
  return cast_to(keep(desc.shape, rate), desc.dtype);
}

Value LayerAdapter::built(const std::function<Value()>& build) {
  auto inputs = std::exchange(graph_.inputs, {}), outputs = std::exchange(graph_.outputs, {});
  const size_t first = graph_.nodes.size();
  Value result = build();
  graph_.outputs = std::move(outputs);
  const auto asked = std::exchange(graph_.inputs, std::move(inputs));
  std::vector<Node> fragment(graph_.nodes.begin() + static_cast<int64_t>(first), graph_.nodes.end());
  graph_.nodes.resize(first);
  std::map<Value, Value> instead;
  for (const auto& [name, value] : asked) instead[value] = mask_for(name, graph_.desc(value));
  for (Node& node : fragment) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Value& in = node.inputs[i];
      if (const auto found = instead.find(in); found != instead.end()) in = found->second;
      if (static_cast<int>(i) == node.op->channels_last_input) in = emit(to_channels_last_op, {in});
    }
    graph_.nodes.push_back(std::move(node));
  }
  const auto replaced = instead.find(result);
  return replaced == instead.end() ? result : replaced->second;
}

void LayerAdapter::take_over(size_t first, Value result) {
  bool found = false;
  for (size_t n = first; n < graph_.nodes.size(); ++n) {
    for (Value& in : graph_.nodes[n].inputs)
      if (found && in == result) in = node_.outputs[0];
    for (Value& out : graph_.nodes[n].outputs)
      if (out == result) out = node_.outputs[0], found = true;
  }
  if (found) return;  // else it is one of the values that the rule was given
  emit(affine_op, {result}, {{"scale", 1.0}, {"shift", 0.0}});
  graph_.nodes.back().outputs[0] = node_.outputs[0];
}

}  // namespace lh
