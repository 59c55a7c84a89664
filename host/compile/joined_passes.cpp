#include "compile/joined_passes.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"

namespace lh {
namespace {

constexpr const char* said = "output";

int64_t dropout_streams(const std::vector<Node>& nodes) {
  int64_t count = 0;
  for (const Node& node : nodes)
    if (node.op == &dropout_mask_op) count = std::max(count, node.attrs.i("stream") + 1);
  return count;
}

}  // namespace

JoinedPasses::JoinedPasses(Graph& step)
    : graph_(step), last_(std::exchange(step.nodes, {})), streams_(dropout_streams(last_)) {}

Value JoinedPasses::say(const Graph& forward, const InputOf& input) {
  const Value output = append(graph_, forward, input).at(said);
  if (graph_.desc(output).dtype == DType::f32) return output;
  return graph_.add(cast_op, {output}, {{"dtype", static_cast<int64_t>(DType::f32)}}, 0)[0];
}

void JoinedPasses::learn(const Graph& pass, const InputOf& input) {
  const auto before = static_cast<int64_t>(graph_.nodes.size());
  const std::map<std::string, Value> made = append(graph_, pass, input);
  std::vector<Node> nodes(graph_.nodes.begin() + before, graph_.nodes.end());
  graph_.nodes.resize(static_cast<size_t>(before));
  const int64_t streams = dropout_streams(nodes);
  for (Node& node : nodes)
    if (node.op == &dropout_mask_op) node.attrs.set("stream", node.attrs.i("stream") + streams_);
  streams_ += streams;
  add_nodes(std::move(nodes), made);
}

void JoinedPasses::give_last(const std::string& input, Value value) {
  const Value asked = graph_.inputs.at(input);
  graph_.inputs.erase(input);
  for (Node& node : last_) std::ranges::replace(node.inputs, asked, value);
}

void JoinedPasses::finish() {
  add_nodes(std::move(last_), graph_.outputs);
  for (const auto& [name, total] : totals_) graph_.outputs[name] = total;
}

void JoinedPasses::add_nodes(std::vector<Node> nodes, const std::map<std::string, Value>& made) {
  std::map<Value, std::string> names;
  for (const auto& [name, v] : made)
    if (name != said) names[v] = name;
  for (Node& node : nodes) {
    const std::vector<Value> outputs = node.outputs;
    graph_.nodes.push_back(std::move(node));
    for (const Value v : outputs) {
      const auto named = names.find(v);
      if (named == names.end()) continue;
      Value& total = totals_[named->second];
      total = total ? graph_.add(add_op, {v, total}, {}, 0)[0] : v;
    }
  }
}

}  // namespace lh
