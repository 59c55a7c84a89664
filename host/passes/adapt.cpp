#include "passes/adapt.h"

#include <algorithm>

#include "graph/op.h"
#include "ops/ops.h"
#include "passes/layout.h"

namespace lh {

std::string module_of(const std::string& weight) {
  constexpr std::string_view suffix = ".weight";
  return weight.ends_with(suffix) ? weight.substr(0, weight.size() - suffix.size()) : std::string();
}

std::string component_of(const std::string& name) {
  const size_t colon = name.find(':');
  return colon == std::string::npos ? std::string() : name.substr(0, colon);
}

std::string down_name(const std::string& module) { return module + ".lora_down.weight"; }
std::string up_name(const std::string& module) { return module + ".lora_up.weight"; }

namespace {

// The module of a layer whose weight is a parameter; empty for other nodes, and for convolutions in groups, whose
// channels the rank of an adapter would have to be divided among.
std::string module_of(const Graph& graph, const Node& node, const std::map<Value, Value>& reordered) {
  if (node.op != &linear_op && node.op != &conv2d_op) return {};
  if (node.op == &conv2d_op && node.attrs.i("groups") != 1) return {};
  const auto source = reordered.find(node.inputs[1]);
  const ValueInfo& weight = graph.info(source == reordered.end() ? node.inputs[1] : source->second);
  return weight.kind == ValueKind::param ? lh::module_of(weight.name) : std::string();
}

// Rewrites one layer. Nodes are appended where the layer stood; the last one takes over its output.
class LayerAdapter {
 public:
  LayerAdapter(Graph& graph, const Node& node, const std::string& module, const AdapterSpec& spec)
      : graph_(graph), node_(node), module_(module), spec_(spec), scale_(spec.alpha / static_cast<double>(spec.rank)) {}

  // `mask` gives the dropout mask for activations of a shape, or no value.
  using Mask = std::function<Value(const Shape& shape)>;
  AdaptedModule linear(const Mask& mask) {
    const Shape weight = graph_.desc(input(1)).shape;
    const Value down = parameter(down_name(module_), {spec_.rank, weight[1]});
    const Value up = parameter(up_name(module_), {weight[0], spec_.rank});
    const Shape inner = graph_.desc(input(0)).shape.with(-1, spec_.rank);
    graph_.add(lora_op, {input(0), input(1), input(2), down, up, mask(inner), input(3)}, {{"scale", scale_}},
               node_.scope);
    return finish(down, up);
  }

  // The layer's own kernel, stride and padding in `down`, then a 1x1 convolution.
  AdaptedModule conv2d(const Mask& mask) {
    const Shape weight = graph_.desc(input(1)).shape;  // [O, C, KH, KW]
    const Value down = parameter(down_name(module_), weight.with(0, spec_.rank));
    const Value up = parameter(up_name(module_), {weight[0], spec_.rank, 1, 1});
    graph_.info(down).channels_last = true;
    const Value base = emit(conv2d_op, {input(0), input(1), input(2)}, node_.attrs);
    Value inner = emit(conv2d_op, {input(0), computed(down), {}}, node_.attrs);  // [N, H, W, rank]
    if (const Value factors = mask(graph_.desc(inner).shape)) inner = emit(mul_op, {inner, factors});
    const Value matrix = emit(reshape_op, {computed(emit(affine_op, {up}, {{"scale", scale_}, {"shift", 0.0}}))},
                              {{"shape", std::vector<int64_t>{weight[0], spec_.rank}}});
    emit(add_op, {base, emit(linear_op, {inner, matrix, {}})});
    return finish(down, up);
  }

 private:
  Value input(size_t i) const { return i < node_.inputs.size() ? node_.inputs[i] : Value{}; }
  Value parameter(const std::string& name, const Shape& shape) { return graph_.add_param(name, {DType::f32, shape}); }
  Value emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {}) {
    return graph_.add(op, std::move(inputs), std::move(attrs), node_.scope)[0];
  }
  // In the type of computation.
  Value computed(Value v) {
    const DType dtype = graph_.desc(input(0)).dtype;
    return graph_.desc(v).dtype == dtype ? v : emit(cast_op, {v}, {{"dtype", static_cast<int64_t>(dtype)}});
  }
  AdaptedModule finish(Value down, Value up) {
    graph_.nodes.back().outputs[0] = node_.outputs[0];  // readers of the old layer now read the adapted one
    return {module_, down, up, spec_.alpha};
  }

  Graph& graph_;
  const Node& node_;
  const std::string& module_;
  const AdapterSpec& spec_;
  double scale_;
};

}  // namespace

std::vector<AdaptedModule> adapt(Graph& graph, const std::function<const AdapterSpec*(const std::string&)>& select,
                                 bool training) {
  std::vector<AdaptedModule> modules;
  const std::map<Value, Value> reordered = reordered_weights(graph);
  int64_t masks = 0;  // each use of a module has a mask of its own
  std::vector<Node> old;
  old.swap(graph.nodes);
  for (Node& node : old) {
    const std::string module = module_of(graph, node, reordered);
    const AdapterSpec* spec = module.empty() ? nullptr : select(module);
    if (spec == nullptr) {
      graph.nodes.push_back(std::move(node));
      continue;
    }
    const auto mask = [&](const Shape& shape) -> Value {
      if (!training || spec->dropout == 0) return {};
      const auto known = graph.inputs.find("step");
      const Value step = known != graph.inputs.end() ? known->second : graph.add_input("step", {DType::i32, {1}});
      return graph.add(dropout_mask_op, {step},
                       {{"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())},
                        {"p", spec->dropout},
                        {"seed", static_cast<int64_t>(spec->seed)},
                        {"stream", masks++}},
                       node.scope)[0];
    };
    LayerAdapter layer(graph, node, module, *spec);
    AdaptedModule adapted = node.op == &conv2d_op ? layer.conv2d(mask) : layer.linear(mask);
    if (std::ranges::none_of(modules, [&](const AdaptedModule& m) { return m.name == module; }))
      modules.push_back(std::move(adapted));
  }
  return modules;
}

}  // namespace lh
