#include "run/side_by_side.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/op.h"
#include "ops/ops.h"
#include "run/flops.h"

namespace lh {
namespace {

// What a GPU multiplies and adds while it reads or writes a byte: 165 to 200 on cards from 8.9 on.
constexpr double flops_a_byte = 175;
constexpr double start = 6e6;   // bytes it could have moved while one operation ends and the next begins
constexpr int some = 4;         // operations that are worth a branch of their own
constexpr double small = 48e6;  // bytes, in the mean: what takes longer fills a GPU by itself

// Nearly all are views.
bool moves_nothing(const Node& node) { return node.op->alias || is_cut(node) || node.op == &concat_op; }

// Bytes that could be moved in its time.
double work_of(const Graph& graph, const Node& node) {
  if (moves_nothing(node)) return 0;
  double bytes = 0;
  for (const std::vector<Value>* values : {&node.inputs, &node.outputs})
    for (const Value v : *values)
      if (v) bytes += static_cast<double>(graph.desc(v).bytes());
  return std::max(bytes, flops(graph, node) / flops_a_byte) + start;
}

bool is_border(const Node& node) {
  return node.op == &attention_op || node.op == &attention_backward_op || is_transfer(node) ||
         !node.op->in_place.empty();
}

// The nodes since the last border, as sets that are joined as nodes turn up that depend on them.
class Strands {
 public:
  Strands(const Graph& graph, std::vector<SideBySide>& found) : graph_(graph), found_(found) {}

  void add(int64_t n) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    const bool sends =
        is_transfer(node) ||
        (moves_nothing(node) && std::ranges::any_of(node.inputs, [&](Value in) { return sent_.contains(in.id); }));
    if (sends)
      for (const Value out : node.outputs) sent_.insert(out.id);
    const std::vector<size_t> before = before_of(node);
    const auto is_sized = [&](size_t strand) { return all_[strand].operations >= some; };
    // What only cuts a border's results is a part of it.
    const bool cuts = all_.empty() && moves_nothing(node);
    if (cuts || is_border(node) || std::ranges::count_if(before, is_sized) > 1) return end(n);
    const size_t mine = all_.size();
    all_.push_back({.parent = mine, .work = work_of(graph_, node), .operations = moves_nothing(node) ? 0 : 1});
    for (const size_t strand : before) {
      all_[mine].work += all_[strand].work;
      all_[mine].operations += all_[strand].operations;
      all_[strand].parent = mine;
    }
    for (const Value out : node.outputs) strand_of_[out.id] = mine;
    for (const Value in : node.inputs)
      if (sent_.contains(in.id)) strand_of_[in.id] = mine;
  }

  // Node n is the border.
  void end(int64_t n) {
    take(n);
    all_.clear();
    strand_of_.clear();
    first_ = n + 1;
  }

 private:
  // One for each node; the last one of a strand is its own parent and stands for all of it.
  struct Strand {
    size_t parent;
    double work;
    int operations;
  };

  size_t last_of(size_t i) {
    while (all_[i].parent != i) i = all_[i].parent = all_[all_[i].parent].parent;
    return i;
  }

  std::vector<size_t> before_of(const Node& node) {
    std::vector<size_t> before;
    for (const Value in : node.inputs)
      if (const auto found = strand_of_.find(in.id); found != strand_of_.end())
        before.push_back(last_of(found->second));
    std::ranges::sort(before);
    before.erase(std::unique(before.begin(), before.end()), before.end());
    return before;
  }

  void take(int64_t border) {
    std::map<size_t, Strand> strands;
    for (size_t i = 0; i < all_.size(); ++i)
      if (all_[i].parent == i) strands[i] = all_[i];
    if (strands.size() < 2) return;
    const auto largest = std::ranges::max_element(strands, {}, [](const auto& item) { return item.second.work; });
    Strand beside{};
    for (auto it = strands.begin(); it != strands.end(); ++it) {
      if (it == largest) continue;
      beside.work += it->second.work;
      beside.operations += it->second.operations;
    }
    if (largest->second.operations < some || beside.operations < some || beside.work > small * beside.operations)
      return;
    SideBySide side{.first = first_, .last = border - 1, .aside = {}};
    for (size_t i = 0; i < all_.size(); ++i)
      if (last_of(i) != largest->first) side.aside.push_back(first_ + static_cast<int64_t>(i));
    found_.push_back(std::move(side));
  }

  const Graph& graph_;
  std::vector<SideBySide>& found_;
  int64_t first_ = 0;
  std::vector<Strand> all_;  // by node, from first_ on
  // By value id: who writes it; of what is sent, whose first reader alone waits for it, who reads it as well.
  std::map<uint32_t, size_t> strand_of_;
  std::set<uint32_t> sent_;
};

}  // namespace

std::vector<SideBySide> side_by_side(const Graph& graph) {
  std::vector<SideBySide> found;
  Strands strands(graph, found);
  const auto count = static_cast<int64_t>(graph.nodes.size());
  for (int64_t n = 0; n < count; ++n) strands.add(n);
  strands.end(count);
  return found;
}

}  // namespace lh
