#include "graph/adapt.h"

#include <algorithm>

#include "graph/op.h"
#include "ops/ops.h"

namespace lh {

std::string module_of(const std::string& weight) {
  constexpr std::string_view suffix = ".weight";
  return weight.ends_with(suffix) ? weight.substr(0, weight.size() - suffix.size()) : std::string();
}

std::string down_name(const std::string& module) { return module + ".lora_down.weight"; }
std::string up_name(const std::string& module) { return module + ".lora_up.weight"; }

namespace {

// The module of a linear whose weight is a parameter; empty otherwise.
std::string module_of(const Graph& graph, const Node& node) {
  if (node.op != &linear_op) return {};
  const ValueInfo& weight = graph.info(node.inputs[1]);
  return weight.kind == ValueKind::param ? lh::module_of(weight.name) : std::string();
}

}  // namespace

std::vector<AdaptedModule> adapt(Graph& graph, const std::function<const AdapterSpec*(const std::string&)>& select,
                                 bool training) {
  std::vector<AdaptedModule> modules;
  int64_t masks = 0;  // each use of a module has a mask of its own
  std::vector<Node> old;
  old.swap(graph.nodes);
  for (Node& node : old) {
    const std::string module = module_of(graph, node);
    const AdapterSpec* spec = module.empty() ? nullptr : select(module);
    if (spec == nullptr) {
      graph.nodes.push_back(std::move(node));
      continue;
    }
    const auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : Value{}; };
    const Value x = input(0), weight = input(1), bias = input(2), weight_scale = input(3);
    const int64_t in = graph.desc(weight).shape[1], out = graph.desc(weight).shape[0];
    const Value down = graph.add_param(down_name(module), {DType::f32, {spec->rank, in}});
    const Value up = graph.add_param(up_name(module), {DType::f32, {out, spec->rank}});
    Value mask;
    if (training && spec->dropout > 0) {
      const auto known = graph.inputs.find("step");
      const Value step = known != graph.inputs.end() ? known->second : graph.add_input("step", {DType::i32, {1}});
      const Shape shape = graph.desc(x).shape.with(-1, spec->rank);
      mask = graph.add(dropout_mask_op, {step},
                       {{"shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end())},
                        {"p", spec->dropout},
                        {"seed", static_cast<int64_t>(spec->seed)},
                        {"stream", masks++}},
                       node.scope)[0];
    }
    const Attrs attrs{{"scale", spec->alpha / static_cast<double>(spec->rank)}};
    graph.add(lora_op, {x, weight, bias, down, up, mask, weight_scale}, attrs, node.scope);
    graph.nodes.back().outputs[0] = node.outputs[0];  // readers of the old linear now read the adapted one
    if (std::ranges::none_of(modules, [&](const AdaptedModule& m) { return m.name == module; }))
      modules.push_back({module, down, up, spec->alpha});
  }
  return modules;
}

}  // namespace lh
