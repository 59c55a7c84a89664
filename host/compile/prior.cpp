#include "compile/prior.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "passes/append.h"

namespace lh {
namespace {

constexpr const char* prior_output = "prior.output";

}  // namespace

Value add_prior_loss(Graph& graph, Value loss, const std::string& kind) {
  const Value output = graph.outputs.at("output");
  const Shape shape = graph.desc(output).shape;
  const Value prior = graph.add_input(prior_output, {DType::f32, shape});
  const Value weight = graph.add_input(prior_weight, {DType::f32, shape.with(-1, 1)});
  const lk_loss_kind by = kind == "l1" ? LK_L1 : LK_MSE;
  const Value kept = graph.add(loss_op, {output, prior, weight, {}}, {{"kind", int64_t{by}}}, 0)[0];
  return graph.add(add_op, {loss, kept}, {}, 0)[0];
}

void put_prior_in_front(TrainGraph& step, const Graph& base) {
  Graph& graph = step.graph;
  const Value asked = graph.inputs.at(prior_output);
  graph.inputs.erase(prior_output);
  std::vector<Node> learning = std::exchange(graph.nodes, {});
  Value prior = append(graph, base, [&](const std::string& name, const Desc& desc) {
                  return shared_input(graph, name, desc);
                }).at("output");
  if (graph.desc(prior).dtype != DType::f32)
    prior = graph.add(cast_op, {prior}, {{"dtype", static_cast<int64_t>(DType::f32)}}, 0)[0];
  for (Node& node : learning) {
    std::ranges::replace(node.inputs, asked, prior);
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace lh
