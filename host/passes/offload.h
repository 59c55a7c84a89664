// Pass: activations in host memory. Chosen values of the forward pass travel to host memory when they are made, and
// back ahead of the backward pass's first reader, so that the device has none of them in between:
//   y = linear(x, W) ... backward(dz, y)   becomes
//   y = linear(x, W), there = offload(y) ... kept = landed(there, y) ... y' = fetch(kept) ... backward(dz, y')
// Both ways take two blocks' time: y may be overwritten once the second block behind its own is done, and y' begins its
// way with the backward pass of the second block ahead. To the memory plan y and y' are two short-lived activations; no
// bit of a result changes.
//
// What the backward pass reads of another shape of a chosen value, of a piece cut from it, or of a piece that was
// joined to it, is had from y' in the same way: such parts take no memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace lh {

// Values that nodes of a forward pass only look at in another shape, cut or join.
class Parts {
 public:
  explicit Parts(const Graph& graph);
  // How a value is had from one of `wholes`: as another shape or piece of what a node is given, or of what it gives.
  struct Origin {
    const Node* node = nullptr;  // none: it is one of them
    bool of_result = false;
    size_t index = 0;  // of the node's input that the value is, where it is a piece of the result
  };
  std::optional<Origin> origin(Value v, const std::set<Value>& wholes) const;

 private:
  bool within_result(Value v, const std::set<Value>& wholes) const;
  std::vector<const Node*> maker_;                                 // by value id, where it is an alias or a cut
  std::vector<std::vector<std::pair<const Node*, size_t>>> into_;  // aliases and joins that it goes into
};

// Where the blocks' passes are among the nodes, in the order of the forward pass.
struct BlockSpans {
  std::vector<int64_t> of;  // by node: its block, -1 outside of all
  struct Span {
    size_t forward_end = 0, backward_begin = 0;  // the last node, the first
  };
  std::vector<Span> spans;
};
BlockSpans blocks_of(const Graph& graph);

// Behind which node a value is made and sent, behind which it has landed, and in front of which it sets out again.
struct Voyage {
  Value value;
  size_t made = 0, landed = 0, back = 0;
  int64_t block = 0;
};
// Of a value that the backward pass first needs at node `needed`; nothing where two blocks do not lie between.
std::optional<Voyage> voyage(const BlockSpans& blocks, Value value, size_t made, size_t needed);

void offload(Graph& graph, const std::vector<Voyage>& voyages);

// What offload nodes write: in host memory, once for what was sent and for what has landed there.
std::vector<std::pair<Value, Value>> offloaded_values(const Graph& graph);

}  // namespace lh
