// Builds the program of one launch (ops/pointwise.h) from elementwise nodes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "ops/pointwise.h"

namespace lh {

// Whether the node may be part of a program: an elementwise operation, or a reduction, with which a program ends.
bool pointwise_node(const Graph& graph, const Node& node);
bool pointwise_reduction(const Graph& graph, const Node& node);
// The shape of a program with the node.
const Shape& pointwise_shape(const Graph& graph, const Node& node);
// Whether a node of a program may read as its input `i` what `maker`, one of the same program, makes. Codes, their
// scales, integers that a cast makes and reductions have no value within it.
bool pointwise_reads(const Graph& graph, const Node& node, size_t i, const Node& maker);

class PointwiseBuilder {
 public:
  explicit PointwiseBuilder(const Graph& graph) : graph_(graph) {}
  // After the nodes whose results it reads within the program.
  void add(const Node& node);
  void store(const Node& node);  // its results are read elsewhere
  // Nothing where it is larger than a kernel takes, or reduces what has codes or is rounded at random. `scope`: of the
  // node.
  std::optional<Node> finish(const std::map<Value, Value>& replaces, int32_t scope) const;

 private:
  struct Load {
    Value x, scales;
    bool is_signed;
  };
  struct Store {
    int32_t value;  // as in values_: loads are negative
    Value y, scales;
    bool is_signed;
    lk_pointwise_reduction reduction;
    float scale;
    int64_t axes;
  };
  // Numbers of values while the number of loads is not known: load i is -1 - i, instruction i is i.
  int32_t load(Value x, Value scales = {}, bool is_signed = false);
  int32_t value(Value v);
  int32_t emit(lk_pointwise_instruction instruction);
  int32_t rounded(int32_t value, DType dtype);
  int32_t computed(const Node& node);
  void reduce(const Node& node);

  const Graph& graph_;
  std::vector<Load> loads_;
  std::vector<lk_pointwise_instruction> instructions_;
  std::vector<Store> stores_;
  std::map<Value, int32_t> values_;
  Shape shape_;
  bool codes_ = false;  // or rounding at random
};

}  // namespace lh
