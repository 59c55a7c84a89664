// Finds the stretches of nodes that read a weight, and puts a fetch, or an offer, as far ahead of each as the window
// allows.
#include "passes/stream.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "ops/ops.h"
#include "passes/recompute.h"

namespace lh {
namespace {

constexpr int64_t smallest_share = 256;  // of a block's largest weight: smaller ones stay on the device

int64_t bytes_with_factors(const Graph& graph, Value weight) {
  const Value scale = graph.info(weight).scale;
  return graph.desc(weight).bytes() + (scale ? graph.desc(scale).bytes() : 0);
}

// A stretch of nodes that reads a parameter, and the copy that is there for it.
struct Visit {
  Value parameter, copy;
  size_t start = 0;            // of the fetch: in front of this node
  size_t first = 0, last = 0;  // nodes that read it
  int64_t turn = 0;            // number of its block among those that the nodes come to
};

// By parameter: one visit for each time that the nodes come to its block, which is once for each pass. A parameter of
// the last block, which the backward pass begins with, stays where it is in between.
std::vector<Visit> visits_of(const Graph& graph, const std::set<Value>& streamed) {
  int32_t block = -1;
  int64_t turn = 0;
  std::map<Value, std::vector<Visit>> visits;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const Value in : graph.nodes[n].inputs) {
      if (!streamed.contains(in)) continue;
      const int32_t here = checkpoint_scope(graph, graph.nodes[n].scope);
      turn += here != std::exchange(block, here);
      std::vector<Visit>& of = visits[in];
      if (of.empty() || of.back().turn != turn)
        of.push_back({.parameter = in, .copy = {}, .start = n, .first = n, .last = n, .turn = turn});
      else
        of.back().last = n;
    }
  std::vector<Visit> all;
  for (auto& [parameter, of] : visits) all.insert(all.end(), of.begin(), of.end());
  std::ranges::sort(all, {}, [](const Visit& v) { return std::pair(v.first, v.parameter); });
  return all;
}

// Each fetch as early as the window has room for it, in the order in which they are needed: the order of the queue.
void start_early(const Graph& graph, std::vector<Visit>& visits, int64_t window) {
  std::vector<int64_t> held(graph.nodes.size(), 0);
  const auto bytes = [&](const Visit& v) { return graph.desc(v.parameter).bytes(); };
  for (const Visit& v : visits)
    for (size_t n = v.first; n <= v.last; ++n) held[n] += bytes(v);
  size_t before = 0;
  for (Visit& v : visits) {
    while (v.start > before && held[v.start - 1] + bytes(v) <= window) held[--v.start] += bytes(v);
    before = v.start;
  }
}

}  // namespace

std::vector<StreamableBlock> streamable_blocks(const Graph& graph, const std::vector<std::string>& candidates) {
  std::map<Value, std::set<int32_t>> readers;
  for (const Node& node : graph.nodes)
    for (const Value in : node.inputs)
      if (in && graph.info(in).kind == ValueKind::param) readers[in].insert(checkpoint_scope(graph, node.scope));
  for (const auto& [name, v] : graph.outputs) readers[v].insert(-1);
  std::map<int32_t, std::vector<StreamableWeight>> by_scope;
  for (const std::string& name : candidates) {
    const Value weight = graph.params.at(name);
    const auto found = readers.find(weight);
    if (found != readers.end() && found->second.size() == 1)
      by_scope[*found->second.begin()].push_back({name, bytes_with_factors(graph, weight)});
  }
  std::vector<StreamableBlock> blocks;
  for (const int32_t scope : checkpoint_scopes(graph)) {
    int64_t largest = 0;
    for (const StreamableWeight& weight : by_scope[scope]) largest = std::max(largest, weight.bytes);
    StreamableBlock block{.path = graph.scopes[static_cast<size_t>(scope)].path, .weights = {}};
    for (const StreamableWeight& weight : by_scope[scope])
      if (weight.bytes * smallest_share >= largest) {
        block.weights.push_back(weight);
        block.bytes += weight.bytes;
      }
    if (block.bytes > 0) blocks.push_back(std::move(block));
  }
  return blocks;
}

Streaming spread(const std::vector<StreamableBlock>& blocks, int64_t count) {
  Streaming streaming;
  const auto all = static_cast<int64_t>(blocks.size());
  int64_t largest = 0;
  for (int64_t i = 0; i < std::min(count, all); ++i) {
    // The middles of `count` equal parts.
    const StreamableBlock& block = blocks[static_cast<size_t>((2 * i + 1) * all / (2 * std::min(count, all)))];
    for (const StreamableWeight& weight : block.weights) streaming.weights.insert(weight.name);
    largest = std::max(largest, block.bytes);
  }
  streaming.window = 2 * largest;
  return streaming;
}

// The largest first, each to the one that has less of all blocks so far.
std::set<std::string> dealt(const std::vector<StreamableBlock>& blocks, int rank) {
  std::set<std::string> own;
  std::array<int64_t, 2> bytes{};
  for (const StreamableBlock& block : blocks) {
    std::vector<StreamableWeight> weights = block.weights;
    std::ranges::stable_sort(weights, std::greater{}, &StreamableWeight::bytes);
    for (const StreamableWeight& weight : weights) {
      const int owner = bytes[1] < bytes[0] ? 1 : 0;
      bytes[static_cast<size_t>(owner)] += weight.bytes;
      if (owner == rank) own.insert(weight.name);
    }
  }
  return own;
}

void stream(Graph& graph, const Streaming& streaming) {
  std::set<Value> streamed, own;
  for (const auto& [name, parameter] : graph.params) {
    if (!streaming.weights.contains(name)) continue;
    for (const Value v : {parameter, graph.info(parameter).scale}) {
      if (!v) continue;
      streamed.insert(v);
      if (streaming.own.contains(name)) own.insert(v);
    }
  }
  if (streamed.empty()) return;
  std::vector<Visit> visits = visits_of(graph, streamed);
  start_early(graph, visits, streaming.window);

  std::vector<Node> nodes;
  std::map<Value, Value> copy_of;
  size_t fetched = 0;
  std::map<size_t, std::vector<const Visit*>> begins;  // by node
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (; fetched < visits.size() && visits[fetched].start == n; ++fetched) {
      Visit& v = visits[fetched];
      if (own.contains(v.parameter)) {
        nodes.push_back({.op = &offer_op,
                         .inputs = {v.parameter},
                         .outputs = {},
                         .attrs = {},
                         .scope = graph.nodes[v.first].scope});
        continue;
      }
      v.copy = graph.new_value({.desc = graph.desc(v.parameter)});
      nodes.push_back({.op = &fetch_op,
                       .inputs = {v.parameter},
                       .outputs = {v.copy},
                       .attrs = {},
                       .scope = graph.nodes[v.first].scope});
      begins[v.first].push_back(&v);
    }
    for (const Visit* v : begins[n]) copy_of[v->parameter] = v->copy;
    for (Value& in : graph.nodes[n].inputs)
      if (streamed.contains(in) && !own.contains(in)) in = copy_of.at(in);
    nodes.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(nodes);
}

namespace {

std::set<Value> read_by(const Graph& graph, const OpDef& op) {
  std::set<Value> all;
  for (const Node& node : graph.nodes)
    if (node.op == &op && graph.info(node.inputs[0]).kind == ValueKind::param) all.insert(node.inputs[0]);
  return all;
}

}  // namespace

std::set<Value> streamed_parameters(const Graph& graph) { return read_by(graph, fetch_op); }

std::set<Value> offered_parameters(const Graph& graph) { return read_by(graph, offer_op); }

}  // namespace lh
