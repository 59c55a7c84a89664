// Lifetimes of values, and a place in the arena for each.
#include "run/plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/error.h"

namespace lh {
namespace {

// Where a buffer lies, and from which node to which. Each buffer is compared with all that are placed before it, so
// that they stand side by side in memory.
struct Taken {
  int64_t offset, end, first, last;
};

// Lowest offset at which `bytes` fit between the buffers that live at the same time (`placed` is sorted by offset).
int64_t lowest_gap(const std::vector<Taken>& placed, const PlannedBuffer& buffer, int64_t bytes) {
  int64_t offset = 0;
  for (const Taken& t : placed) {
    if (t.first > buffer.last || buffer.first > t.last) continue;
    if (offset + bytes <= t.offset) break;
    offset = std::max(offset, t.end);
  }
  return offset;
}

int64_t live_peak(const std::vector<PlannedBuffer>& buffers, int64_t nodes) {
  std::vector<int64_t> change(static_cast<size_t>(nodes) + 2, 0);
  for (const PlannedBuffer& b : buffers) {
    change[static_cast<size_t>(b.first + 1)] += placed_bytes(b.bytes);
    if (b.last + 2 <= nodes + 1) change[static_cast<size_t>(b.last + 2)] -= placed_bytes(b.bytes);
  }
  int64_t now = 0, peak = 0;
  for (const int64_t c : change) peak = std::max(peak, now += c);
  return peak;
}

}  // namespace

int64_t placed_bytes(int64_t bytes) { return (bytes + plan_alignment - 1) / plan_alignment * plan_alignment; }

int64_t constant_bytes(const Graph& graph) {
  int64_t total = 0;
  for (uint32_t id = 1; id <= graph.value_count(); ++id)
    if (graph.info(Value{id}).kind == ValueKind::constant) total += placed_bytes(graph.desc(Value{id}).bytes());
  return total;
}

namespace {

// The buffers with their lives, in no place yet.
Plan lives_of(const Graph& graph, const std::set<Value>& external, PieceLayout pieces,
              const std::vector<SideBySide>& sides) {
  const auto count = static_cast<int64_t>(graph.nodes.size());
  Plan plan;
  plan.views = share_storage(graph, external, pieces);
  plan.side_by_side = sides;

  std::map<uint32_t, PlannedBuffer> buffers;  // by root value
  const auto touch = [&](Value v, int64_t node) {
    const uint32_t root = plan.views[v.id].root;
    if (external.contains(Value{root}) || graph.info(Value{root}).kind == ValueKind::constant) return;
    auto [it, fresh] = buffers.try_emplace(root, PlannedBuffer{Value{root}, 0, plan.views[root].storage, node, node});
    it->second.first = std::min(it->second.first, node);
    it->second.last = std::max(it->second.last, node);
  };
  const auto keep = [&](Value v) {
    touch(v, -1);
    touch(v, count);
  };
  for (uint32_t id = 1; id < plan.views.size(); ++id) {
    if (graph.info(Value{id}).kind == ValueKind::input) keep(Value{id});
  }
  const auto touch_all = [&](int64_t node, int64_t at) {
    const Node& it = graph.nodes[static_cast<size_t>(node)];
    for (const std::vector<Value>* values : {&it.inputs, &it.outputs})
      for (const Value v : *values)
        if (v) touch(v, at);
  };
  for (int64_t n = 0; n < count; ++n) touch_all(n, n);
  for (const SideBySide& side : sides)
    for (const int64_t n : side.aside)
      for (const int64_t end : {side.first, side.last}) touch_all(n, end);
  for (const auto& [name, v] : graph.outputs) touch(v, count);
  for (const auto& [root, buffer] : buffers) plan.buffers.push_back(buffer);
  plan.bytes = plan.live_peak = live_peak(plan.buffers, count);
  return plan;
}

void place(Plan& plan) {
  // Long-lived and large buffers first: the greedy order that wastes least on these graphs.
  std::vector<PlannedBuffer*> order;
  for (PlannedBuffer& buffer : plan.buffers) order.push_back(&buffer);
  std::ranges::sort(order, [](const PlannedBuffer* a, const PlannedBuffer* b) {
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    if (a->last - a->first != b->last - b->first) return a->last - a->first > b->last - b->first;
    return a->value < b->value;
  });
  std::vector<Taken> placed;  // by offset
  plan.bytes = 0;
  for (PlannedBuffer* buffer : order) {
    const int64_t bytes = placed_bytes(buffer->bytes);
    buffer->offset = lowest_gap(placed, *buffer, bytes);
    const Taken taken{buffer->offset, buffer->offset + bytes, buffer->first, buffer->last};
    plan.bytes = std::max(plan.bytes, taken.end);
    placed.insert(std::ranges::upper_bound(placed, taken.offset, {}, &Taken::offset), taken);
  }
  plan.placed = true;
}

}  // namespace

Plan plan_memory(const Graph& graph, const std::set<Value>& external, PieceLayout pieces) {
  Plan plan = lives_of(graph, external, pieces, side_by_side(graph));
  place(plan);
  return plan;
}

Plan plan_memory(const Graph& graph, const std::set<Value>& external) {
  return plan_within(graph, external, std::numeric_limits<int64_t>::max());
}

Plan plan_within(const Graph& graph, const std::set<Value>& external, int64_t most) {
  // The fraction of the arena that copies may be bought with: what else would have to be computed twice for so much
  // memory takes longer than they do.
  constexpr int64_t most_growth = 8;
  const std::vector<SideBySide> sides = side_by_side(graph);
  Plan in_lines = lives_of(graph, external, PieceLayout::in_lines, sides);
  const bool lines = std::ranges::any_of(in_lines.views, [](const View& view) { return view.line != 0; });
  Plan contiguous = lines ? lives_of(graph, external, PieceLayout::contiguous, sides) : Plan{};
  if (lines) in_lines.bytes = std::min(in_lines.live_peak, contiguous.live_peak);
  if (in_lines.bytes > most) return in_lines;
  place(in_lines);
  if (!lines) return in_lines;
  const auto worth_its_memory = [&] { return in_lines.bytes <= contiguous.bytes + contiguous.bytes / most_growth; };
  if (worth_its_memory()) return in_lines;  // even beside the least that the other could take
  place(contiguous);
  return worth_its_memory() ? std::move(in_lines) : std::move(contiguous);
}

std::string print(const Graph& graph, const Plan& plan, size_t most) {
  std::string text = fmt::format("{} buffers in {} bytes; {} bytes live at most; {} stretches side by side\n",
                                 plan.buffers.size(), plan.bytes, plan.live_peak, plan.side_by_side.size());
  std::vector<const PlannedBuffer*> order;
  for (const PlannedBuffer& b : plan.buffers) order.push_back(&b);
  std::ranges::stable_sort(order, std::greater{}, &PlannedBuffer::bytes);
  for (size_t i = 0; i < std::min(most, order.size()); ++i) {
    const PlannedBuffer& b = *order[i];
    const ValueInfo& info = graph.info(b.value);
    text += fmt::format("  at {:>12} {:>12} bytes, nodes {} to {}: %{} {} {}\n", b.offset, b.bytes, b.first, b.last,
                        b.value.id, info.desc.text(), info.name);
  }
  return text;
}

}  // namespace lh
