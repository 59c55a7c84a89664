#include "compile/preserve.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "passes/append.h"

namespace lh {
namespace {

int64_t dropout_streams(const std::vector<Node>& nodes) {
  int64_t count = 0;
  for (const Node& node : nodes)
    if (node.op == &dropout_mask_op) count = std::max(count, node.attrs.i("stream") + 1);
  return count;
}

}  // namespace

std::string preserved_name(const std::string& input) { return "preserved." + input; }

void preserve(TrainGraph& step, const Graph& base, const TrainGraph& kept, const Recipe& recipe) {
  Graph& graph = step.graph;
  std::vector<Node> learning = std::exchange(graph.nodes, {});
  const auto input = [&](const std::string& name, const Desc& desc) {
    const auto spec = recipe.inputs.find(name);
    const bool of_prompt = spec != recipe.inputs.end() && spec->second.of_prompt();
    return shared_input(graph, of_prompt ? preserved_name(name) : name, desc);
  };
  Value prior = append(graph, base, input).at("output");
  if (graph.desc(prior).dtype != DType::f32)
    prior = graph.add(cast_op, {prior}, {{"dtype", static_cast<int64_t>(DType::f32)}}, 0)[0];
  const size_t before = graph.nodes.size();
  const auto more = append(graph, kept.graph, [&](const std::string& name, const Desc& desc) {
    if (name == "target") return prior;
    return name == "loss_weight" ? shared_input(graph, preserved_weight, desc) : input(name, desc);
  });
  // Dropout is drawn anew.
  const int64_t streams = dropout_streams(learning);
  for (size_t n = before; n < graph.nodes.size(); ++n)
    if (Node& node = graph.nodes[n]; node.op == &dropout_mask_op)
      node.attrs.set("stream", node.attrs.i("stream") + streams);

  // Loss and gradients are added up as soon as both are there.
  std::map<Value, std::string> sums;
  for (const auto& [name, v] : more)
    if (name != "output") sums[graph.outputs.at(name)] = name;
  for (Node& node : learning) {
    graph.nodes.push_back(std::move(node));
    const std::vector<Value> made = graph.nodes.back().outputs;
    for (const Value v : made)
      if (const auto sum = sums.find(v); sum != sums.end())
        graph.outputs[sum->second] = graph.add(add_op, {v, more.at(sum->second)}, {}, 0)[0];
  }
}

}  // namespace lh
