// Adds the ops of an adapter behind the layer that it belongs to.
#include "passes/adapt.h"

#include <algorithm>

#include "passes/adapt_layer.h"
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

std::string down_name(const std::string& module) { return module + "." + down_key; }
std::string up_name(const std::string& module) { return module + "." + up_key; }
std::string start_name(const std::string& parameter) { return parameter + ".start"; }

Value AdaptedModule::value(std::string_view key) const {
  const auto found = std::ranges::find(tensors, key, &AdaptedTensor::key);
  return found == tensors.end() ? Value{} : found->value;
}

std::vector<AdaptedModule> adapt(Graph& graph, const std::function<const AdapterSpec*(const std::string&)>& select,
                                 bool training) {
  std::vector<AdaptedModule> modules;
  AdaptContext context{.graph = graph, .reordered = reordered_weights(graph), .training = training};
  std::vector<Node> old;
  old.swap(graph.nodes);
  for (Node& node : old) {
    const std::string module = adaptable_module(graph, node, context.reordered);
    const AdapterSpec* spec = module.empty() ? nullptr : select(module);
    AdaptedModule adapted;
    if (spec != nullptr) adapted = LayerAdapter(context, node, module, *spec).run();
    if (adapted.tensors.empty()) {
      graph.nodes.push_back(std::move(node));
      continue;
    }
    if (std::ranges::none_of(modules, [&](const AdaptedModule& m) { return m.name == module; }))
      modules.push_back(std::move(adapted));
  }
  return modules;
}

}  // namespace lh
