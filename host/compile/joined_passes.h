// Several passes of a model one after another as one graph: one loss and one gradient for each trained tensor, whatever
// looks at a step, while activations of a pass lie in the memory of the others. Losses and gradients of passes are
// added up as soon as those of the next are there, so that between two passes one set of gradients stays.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "passes/append.h"

namespace lh {

class JoinedPasses {
 public:
  // Of a graph that is a forward and a backward pass: it becomes the last of several.
  explicit JoinedPasses(Graph& step);
  // Next, a forward pass; gives its "output", float32.
  Value say(const Graph& forward, const InputOf& input);
  // Next, a forward and a backward pass with outputs "loss" and "grad.<parameter>". Its dropout is drawn anew.
  void learn(const Graph& pass, const InputOf& input);
  // The last pass reads `value` where it had this input.
  void give_last(const std::string& input, Value value);
  // Then the last pass. What it says is the output of the whole.
  void finish();

 private:
  // Nodes of a pass, with the sums behind what they make.
  void add_nodes(std::vector<Node> nodes, const std::map<std::string, Value>& made);
  Graph& graph_;
  std::vector<Node> last_;
  std::map<std::string, Value> totals_;
  int64_t streams_;  // of dropout, so far
};

}  // namespace lh
