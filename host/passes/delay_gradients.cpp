#include "passes/delay_gradients.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "lora_kernels.h"
#include "ops/lora_gradients.h"
#include "ops/ops.h"
#include "passes/rows.h"
#include "passes/uses.h"

namespace lh {
namespace {

bool has_few_rows(const Graph& graph, Value v) { return rows_of(graph, v) <= LK_FEW_ROWS; }

// What a node reads, but for weights, and what it makes.
bool has_few_rows(const Graph& graph, const Node& node) {
  return std::ranges::all_of(node.outputs, [&](Value out) { return has_few_rows(graph, out); }) &&
         std::ranges::all_of(node.inputs, [&](Value in) {
           return !in || graph.info(in).kind == ValueKind::param || has_few_rows(graph, in);
         });
}

class Delays {
 public:
  explicit Delays(const Graph& graph) : graph_(graph), uses_(graph), place_(graph.nodes.size() + 1) {
    for (size_t n = 0; n < place_.size(); ++n) place_[n] = n;
  }

  // Gradients behind node `border`, if nothing reads them before.
  void move(size_t gradients, size_t border) {
    for (const Value out : graph_.nodes[gradients].outputs)
      if (std::ranges::any_of(uses_.readers[out.id], [&](size_t reader) { return place_[reader] < border; })) return;
    place_[gradients] = border;
    std::set<size_t, std::greater<>> before;  // the last first, so that who reads has moved before who writes
    const auto add_makers = [&](size_t n) {
      for (const Value in : graph_.nodes[n].inputs)
        if (in && uses_.maker[in.id]) before.insert(*uses_.maker[in.id]);
    };
    for (add_makers(gradients); !before.empty();) {
      const size_t n = before.extract(before.begin()).value();
      const auto moves_with_readers = [&](Value out) {
        return std::ranges::all_of(uses_.readers[out.id], [&](size_t reader) { return place_[reader] == border; });
      };
      if (!has_few_rows(graph_, graph_.nodes[n])) continue;
      if (!std::ranges::all_of(graph_.nodes[n].outputs, moves_with_readers)) continue;
      place_[n] = border;
      add_makers(n);
    }
  }

  // All nodes by place; one that moves behind another stands behind it, for its own number is less.
  std::vector<size_t> order() const {
    std::vector<size_t> numbers(graph_.nodes.size());
    for (size_t n = 0; n < numbers.size(); ++n) numbers[n] = n;
    std::ranges::sort(numbers, {}, [&](size_t n) { return std::tuple(place_[n], place_[n] != n, n); });
    return numbers;
  }

 private:
  const Graph& graph_;
  const Uses uses_;
  // By node, and of who reads what the graph puts out: its own number, or what it stands behind.
  std::vector<size_t> place_;
};

}  // namespace

void delay_gradients(Graph& graph) {
  Delays delays(graph);
  std::optional<size_t> border;  // the attention that follows
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (graph.nodes[n].op == &attention_backward_op) border = n;
    if (graph.nodes[n].op != &lora_gradients_op || !border) continue;
    if (has_few_rows(graph, graph.nodes[n].inputs[LoraGradients::X])) delays.move(n, *border);
  }
  std::vector<Node> nodes;
  for (const size_t n : delays.order()) nodes.push_back(std::move(graph.nodes[n]));
  graph.nodes = std::move(nodes);
}

}  // namespace lh
