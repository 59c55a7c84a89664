// Finds what lies together and whether one value of it is enough, and deals it out over the blocks.
#include "run/offloadable.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "graph/op.h"
#include "passes/recompute.h"
#include "run/plan.h"

namespace lh {
namespace {

// Values of the forward pass that lie in one storage.
struct Cluster {
  Value whole;               // covers it; 0: none does
  std::vector<Value> later;  // the backward pass reads them
  size_t needed = 0;         // at first
  bool stays = false;        // has to be there at the end
};

}  // namespace

std::vector<Voyage> offloadable(const Graph& graph, const std::set<Value>& external) {
  const size_t forward = forward_count(graph);
  const std::vector<View> views = share_storage(graph, external, PieceLayout::in_lines);
  std::vector<size_t> needed(graph.value_count() + 1, 0), maker(graph.value_count() + 1, 0);
  for (size_t n = graph.nodes.size(); n-- > forward;)
    for (const Value in : graph.nodes[n].inputs) needed[in.id] = n;
  std::set<Value> outputs;
  for (const auto& [name, v] : graph.outputs) outputs.insert(v);

  std::map<uint32_t, Cluster> clusters;  // by root
  for (size_t n = 0; n < forward; ++n)
    for (const Value out : graph.nodes[n].outputs) {
      const View& view = views[out.id];
      if (external.contains(Value{view.root}) || graph.info(Value{view.root}).kind != ValueKind::computed) continue;
      maker[out.id] = n;
      Cluster& cluster = clusters[view.root];
      const bool covers = view.offset == 0 && view.line == 0 && graph.desc(out).bytes() == view.storage;
      if (covers && !graph.nodes[n].op->alias && !cluster.whole) cluster.whole = out;
      cluster.stays = cluster.stays || outputs.contains(out);
      if (needed[out.id] == 0) continue;
      cluster.needed = cluster.later.empty() ? needed[out.id] : std::min(cluster.needed, needed[out.id]);
      cluster.later.push_back(out);
    }

  const Parts parts(graph);
  const BlockSpans blocks = blocks_of(graph);
  std::vector<Voyage> voyages;
  for (const auto& [root, cluster] : clusters) {
    if (!cluster.whole || cluster.later.empty() || cluster.stays) continue;
    const auto had = [&, &cluster = cluster](Value v) { return parts.origin(v, {cluster.whole}).has_value(); };
    if (!std::ranges::all_of(cluster.later, had)) continue;
    if (const auto found = voyage(blocks, cluster.whole, maker[cluster.whole.id], cluster.needed))
      voyages.push_back(*found);
  }
  std::ranges::sort(voyages, {}, &Voyage::made);
  return voyages;
}

int64_t offloaded_bytes(const Graph& graph, const std::vector<Voyage>& voyages) {
  return std::accumulate(voyages.begin(), voyages.end(), int64_t{0},
                         [&](int64_t sum, const Voyage& v) { return sum + placed_bytes(graph.desc(v.value).bytes()); });
}

std::vector<Voyage> evenly(const Graph& graph, const std::vector<Voyage>& voyages, int64_t bytes) {
  const int64_t all = offloaded_bytes(graph, voyages);
  if (bytes >= all) return voyages;
  std::map<int64_t, std::vector<Voyage>> by_block;
  for (const Voyage& v : voyages) by_block[v.block].push_back(v);
  const double share = static_cast<double>(bytes) / static_cast<double>(all);
  double wanted = 0;
  int64_t taken = 0;
  std::vector<Voyage> chosen;
  for (auto& [block, of_block] : by_block) {
    wanted += share * static_cast<double>(offloaded_bytes(graph, of_block));
    std::ranges::stable_sort(of_block, std::greater{}, [&](const Voyage& v) { return graph.desc(v.value).bytes(); });
    for (const Voyage& v : of_block) {
      const int64_t size = placed_bytes(graph.desc(v.value).bytes());
      if (static_cast<double>(taken + size / 2) > wanted) continue;
      taken += size;
      chosen.push_back(v);
    }
  }
  std::ranges::sort(chosen, {}, &Voyage::made);
  return chosen;
}

int64_t offloaded_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const auto& [there, kept] : offloaded_values(graph)) bytes += placed_bytes(graph.desc(there).bytes());
  return bytes;
}

}  // namespace lh
