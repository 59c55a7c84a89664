// The rewriting of one layer by the adapt pass: nodes are appended where the layer stood, and the last one takes over
// its output.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "passes/adapt.h"
#include "passes/factored_weight.h"

namespace lh {

// What all layers of a graph share.
struct AdaptContext {
  Graph& graph;
  std::map<Value, Value> reordered;  // results of to_channels_last and what they are made of
  bool training = true;
  int64_t masks = 0;  // drawn so far: each has a stream of its own
};

// The module of a layer that can have an adapter; empty for other nodes.
std::string adaptable_module(const Graph& graph, const Node& node, const std::map<Value, Value>& reordered);

class LayerAdapter {
 public:
  LayerAdapter(AdaptContext& context, const Node& node, const std::string& module, const AdapterSpec& spec);
  // The module, or one without tensors where the rule leaves the layer alone.
  AdaptedModule run();

 private:
  Value input(size_t i) const { return i < node_.inputs.size() ? node_.inputs[i] : Value{}; }
  Value emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {});
  Value cast_to(Value v, DType dtype);
  Value computed(Value v) { return cast_to(v, graph_.desc(input(0)).dtype); }  // in the type of the layer's input
  Value base_output();                                                         // of the layer without its adapter
  Value base_weight();                                                         // f32, in the order of files

  // By value: emitting nodes moves the graph's own shapes.
  // Factors 0 or 1 / (1 - p), in the type of computation.
  Value mask(Shape shape, double p);
  // 0 or 1, f32.
  Value keep(Shape shape, double p);
  // The product of all dropouts on the rank activations of a pair; none where there is no dropout.
  Value pair_mask(Shape inner);
  // The pair of twice the rank that counts the change from the start.
  std::pair<Value, Value> from_start(Value down, Value up);
  // Each gives the layer's new output.
  Value linear_pair(Value down, Value up, double scale);
  Value conv_pair(Value down, Value up, double scale);
  Value by_output(const AdapterRule::Values& tensors);
  Value by_weight(const AdapterRule::Values& tensors);
  Value by_factors(const FactoredWeight& factors);
  bool drops_module() const { return context_.training && spec_.module_dropout > 0; }
  // `adapted`, or `base` in the steps that the module is dropped in.
  Value unless_dropped(Value adapted, Value base);
  // base + strength (adapted - base), of outputs or of weights.
  Value at_strength(Value adapted, Value base);
  Value scaled(Value v, double factor);
  // The layer with another weight [out, in, ...], in the order of files.
  Value layer_with(Value weight, Value bias);
  // What a rule builds, with masks for the inputs that it asks for and weights of convolutions in the order that
  // kernels read.
  Value built(const std::function<Value()>& build);
  Value mask_for(const std::string& input, Desc desc);
  // Readers of the old layer read `result`, of a node from number `first` on.
  void take_over(size_t first, Value result);

  AdaptContext& context_;
  Graph& graph_;
  const Node& node_;
  const AdapterSpec& spec_;
  AdapterLayer layer_;
};

}  // namespace lh
