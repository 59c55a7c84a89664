// Finds what lies together, solves each block for the prices at which the way to keep it changes, and sorts the steps.
#include "run/recompute_ladder.h"

#include <algorithm>
#include <string_view>

#include "core/min_cut.h"
#include "ops/ops.h"
#include "passes/recompute.h"
#include "run/flops.h"

namespace lh {
namespace {

// What a node does, in a word for the user.
std::string kind_of(const Graph& graph, const Node& node) {
  if (node.op == &attention_op) return "attention";
  if (flops(graph, node) > 0) return "products";
  if (std::string_view(node.op->name).find("norm") != std::string_view::npos) return "norms";
  if (node.op == &rope_op) return "rope";
  if (node.op == &concat_op || is_cut(node)) return "joined";
  return "activations and gates";
}

// By value id, the value that it is another shape of; itself.
std::vector<uint32_t> sources_of(const Graph& graph, size_t forward_count) {
  std::vector<uint32_t> source(graph.value_count() + 1);
  for (uint32_t id = 0; id < source.size(); ++id) source[id] = id;
  for (size_t n = 0; n < forward_count; ++n) {
    const Node& node = graph.nodes[n];
    if (node.op->alias) source[node.outputs[0].id] = source[node.inputs[0].id];
  }
  return source;
}

// Values that the backward pass reads, or that have to be there at the end.
std::vector<bool> read_later(const Graph& graph, size_t forward_count) {
  std::vector<bool> read(graph.value_count() + 1);
  for (size_t n = forward_count; n < graph.nodes.size(); ++n)
    for (const Value in : graph.nodes[n].inputs) read[in.id] = true;
  for (const auto& [name, v] : graph.outputs) read[v.id] = true;
  return read;
}

}  // namespace

int64_t total(const std::map<std::string, int64_t>& kinds) {
  int64_t bytes = 0;
  for (const auto& [kind, of_kind] : kinds) bytes += of_kind;
  return bytes;
}

void RecomputeLadder::find_storages(const Graph& graph, size_t forward_count, const Plan& plan, const Rates& rates) {
  const std::set<Value> may_drop = droppable(graph, forward_count);
  const std::vector<uint32_t> source = sources_of(graph, forward_count);
  const std::vector<bool> later = read_later(graph, forward_count);

  // Sources that are joined where they are written: pieces of the joined storage that could lie elsewhere.
  std::set<uint32_t> pieces;
  std::vector<const Node*> maker(graph.value_count() + 1, nullptr);
  for (size_t n = 0; n < forward_count; ++n) {
    const Node& node = graph.nodes[n];
    for (const Value out : node.outputs) maker[out.id] = &node;
    if (node.op != &concat_op) continue;
    for (const Value in : node.inputs) {
      const uint32_t from = source[in.id];
      const bool within = plan.views[from].root == plan.views[node.outputs[0].id].root;
      if (within && maker[from] != nullptr && !is_cut(*maker[from]) && maker[from]->op != &concat_op)
        pieces.insert(from);
    }
  }

  // One storage for what lies at one root, but for its pieces, which have one each.
  std::map<std::pair<uint32_t, uint32_t>, size_t> index;  // by root, and source of a piece or 0
  for (size_t n = 0; n < forward_count; ++n)
    for (const Value out : graph.nodes[n].outputs) {
      const uint32_t root = plan.views[out.id].root, from = source[out.id];
      if (graph.info(Value{root}).kind != ValueKind::computed) continue;
      const uint32_t piece = pieces.contains(from) ? from : 0;
      const auto [at, fresh] = index.try_emplace({root, piece}, storages_.size());
      if (fresh) storages_.push_back({.values = {}, .makers = {}, .kind = {}});
      Storage& storage = storages_[at->second];
      storage_of_[out.id] = at->second;
      storage.values.push_back(out);
      if (!graph.nodes[n].op->alias) storage.makers.insert(n);
      storage.bytes =
          piece != 0 ? placed_bytes(graph.desc(Value{piece}).bytes()) : placed_bytes(plan.views[root].storage);
      storage.needed = storage.needed || later[out.id];
      storage.stays = storage.stays || !may_drop.contains(out);
    }
  for (size_t s = 0; s < storages_.size(); ++s) {
    std::set<int32_t> scopes;
    for (const size_t n : storages_[s].makers) scopes.insert(checkpoint_scope(graph, graph.nodes[n].scope));
    if (scopes.size() == 1 && *scopes.begin() >= 0) {
      blocks_[*scopes.begin()].storages.insert(s);
    } else {
      storages_[s].stays = true;
      outside_.push_back(s);
    }
  }
  for (const auto& [key, at] : index) {
    const auto& [root, piece] = key;
    if (piece == 0) continue;
    Storage& storage = storages_[at];
    const auto whole = index.find({root, 0});
    if (whole == index.end() || !storages_[whole->second].needed || storage.stays) continue;
    if (storages_[whole->second].stays) {
      storage.bytes = 0;
    } else {
      storage.whole = whole->second;
      storage.copies = 2 * copy_seconds(graph.desc(Value{piece}).bytes(), rates);
    }
  }
  for (Storage& storage : storages_) {
    double most = -1;
    for (const size_t n : storage.makers)
      if (seconds_[n] > most) {
        most = seconds_[n];
        storage.kind = kind_of(graph, graph.nodes[n]);
      }
  }
}

RecomputeLadder::RecomputeLadder(const Graph& graph, size_t forward_count, const Plan& plan, const Rates& rates)
    : storage_of_(graph.value_count() + 1, none_), seconds_(forward_count) {
  for (size_t n = 0; n < forward_count; ++n) seconds_[n] = predicted_seconds(graph, plan, graph.nodes[n], rates);
  find_storages(graph, forward_count, plan, rates);

  for (const int32_t scope : checkpoint_scopes(graph)) {
    Block& block = blocks_[scope];
    for (size_t n = 0; n < forward_count; ++n)
      if (checkpoint_scope(graph, graph.nodes[n].scope) == scope && !graph.nodes[n].op->alias) block.nodes.push_back(n);
    double all = 0;
    for (const size_t n : block.nodes) all += seconds_[n];
    std::vector<Way>& ways = ways_.emplace_back();
    const Way most = cheapest(graph, block, 0), least = cheapest(graph, block, all);  // one byte is worth it all
    ways.push_back(most);
    if (least.bytes < most.bytes) {
      find_between(graph, block, most, least, ways);
      ways.push_back(least);
    }
    for (size_t w = 1; w < ways.size(); ++w) {
      const int64_t bytes = ways[w - 1].bytes - ways[w].bytes;
      steps_.push_back({.price = (ways[w].seconds - ways[w - 1].seconds) / static_cast<double>(bytes),
                        .bytes = bytes,
                        .block = ways_.size() - 1,
                        .way = w});
    }
  }
  // Of equal steps those of the first blocks: their memory is held longest.
  std::ranges::stable_sort(steps_, {}, &Step::price);
}

// Things on the first side: a value that has to be there, a storage that is made again, a node that runs again.
RecomputeLadder::Way RecomputeLadder::cheapest(const Graph& graph, const Block& block, double price) const {
  MinCut cut;
  std::map<size_t, MinCut::Thing> there, again, runs;
  const auto enter = [&](size_t s) {
    if (there.contains(s)) return;
    const Storage& storage = storages_[s];
    there[s] = cut.add();
    again[s] = cut.add();
    if (storage.needed) cut.cost(MinCut::first, there[s], MinCut::never);
    if (storage.stays) cut.cost(again[s], MinCut::second, MinCut::never);
    // What stays and is read anyway costs nothing more.
    if (storage.whole == none_ && !(storage.stays && storage.needed))
      cut.cost(there[s], again[s], price * static_cast<double>(storage.bytes));
  };
  for (const size_t s : block.storages) enter(s);
  for (const size_t n : block.nodes) {
    runs[n] = cut.add();
    cut.cost(runs[n], MinCut::second, seconds_[n]);
    for (const Value in : graph.nodes[n].inputs)
      if (const size_t s = storage_of_[in.id]; s != none_) {
        enter(s);
        cut.cost(runs[n], there[s], MinCut::never);
      }
  }
  for (const size_t s : block.storages) {
    const Storage& storage = storages_[s];
    for (const size_t n : storage.makers) cut.cost(again[s], runs[n], MinCut::never);
    if (storage.whole != none_)
      cut.cost(again[storage.whole], again[s], price * static_cast<double>(storage.bytes) + storage.copies);
  }

  const std::vector<bool> first = cut.solve();
  Way way;
  for (const auto& [n, thing] : runs)
    if (first[thing]) way.seconds += seconds_[n];
  for (const auto& [s, thing] : there) {
    const Storage& storage = storages_[s];
    const bool of_others = !block.storages.contains(s) && storage.needed;
    if (!first[thing] || of_others) continue;
    if (first[again[s]]) {
      way.again.push_back(s);
    } else if (storage.whole == none_ || first[again[storage.whole]]) {
      way.kept.push_back(s);
      way.bytes += storage.bytes;
      way.seconds += storage.copies;
    }
  }
  return way;
}

// Where a price exists at which another way costs less than both of these, it lies between them on the way down.
void RecomputeLadder::find_between(const Graph& graph, const Block& block, const Way& more, const Way& less,
                                   std::vector<Way>& ways) const {
  const double price = (less.seconds - more.seconds) / static_cast<double>(more.bytes - less.bytes);
  const auto cost = [&](const Way& way) { return way.seconds + price * static_cast<double>(way.bytes); };
  const Way way = cheapest(graph, block, price);
  constexpr double rounding = 1e-9;
  if (way.bytes >= more.bytes || way.bytes <= less.bytes || cost(way) >= cost(more) * (1 - rounding)) return;
  find_between(graph, block, more, way, ways);
  ways.push_back(way);
  find_between(graph, block, way, less, ways);
}

int64_t RecomputeLadder::freeable() const {
  int64_t bytes = 0;
  for (const Step& step : steps_) bytes += step.bytes;
  return bytes;
}

std::vector<const RecomputeLadder::Way*> RecomputeLadder::ways_at(double share) const {
  std::vector<const Way*> taken;
  for (const std::vector<Way>& ways : ways_) taken.push_back(&ways.front());
  double left = share * static_cast<double>(freeable());
  for (const Step& step : steps_) {
    if (left < 1) break;  // a byte; what a share of many bytes is off by rounding is less
    taken[step.block] = &ways_[step.block][step.way];
    left -= static_cast<double>(step.bytes);
  }
  return taken;
}

std::set<Value> RecomputeLadder::dropped(double share) const {
  std::set<Value> values;
  for (const Way* way : ways_at(share))
    for (const size_t s : way->again) values.insert(storages_[s].values.begin(), storages_[s].values.end());
  return values;
}

KeptActivations RecomputeLadder::kept(double share) const {
  KeptActivations kept;
  for (const size_t s : outside_)
    if (storages_[s].needed) kept.kept[storages_[s].kind] += storages_[s].bytes;
  for (const Way* way : ways_at(share)) {
    for (const size_t s : way->kept) kept.kept[storages_[s].kind] += storages_[s].bytes;
    for (const size_t s : way->again) kept.again[storages_[s].kind] += storages_[s].bytes;
  }
  return kept;
}

}  // namespace lh
