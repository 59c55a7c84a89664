// What an op is to the host: one constant OpDef in host/ops/<op>.cpp with the parts infer, gradient and launch.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "lora_kernels.h"

namespace lh {

// Shape rule. `in[i]` is nullptr for an absent optional input.
struct Infer {
  DType compute;
  std::span<const Desc* const> in;
  const Attrs& attrs;
};

// Gradient rule: emits nodes that compute the gradients of the inputs that need one.
class Gradient {
 public:
  // so_far: the sum of the gradients that each input has from nodes behind this one, 0 for none.
  Gradient(Graph& graph, const Node& node, std::span<const Value> output_gradients, std::span<const char> needed,
           std::span<const Value> so_far);

  Value in(size_t i) const { return node_.inputs.at(i); }
  Value out(size_t i = 0) const { return node_.outputs.at(i); }
  size_t input_count() const { return node_.inputs.size(); }
  const Attrs& attrs() const { return node_.attrs; }
  // By value: emitting nodes moves the graph's own.
  Shape shape(Value v) const { return graph_.desc(v).shape; }
  std::vector<int64_t> dims(Value v) const {
    const std::span<const int64_t> d = graph_.desc(v).shape.dims();
    return {d.begin(), d.end()};
  }
  // Gradient of an output; 0 when nothing flows into it.
  Value dout(size_t i = 0) const { return output_gradients_[i]; }
  bool needs(size_t i) const { return i < needed_.size() && needed_[i] != 0; }
  Value emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {}) const;
  std::vector<Value> emit_all(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {}) const;
  void set(size_t input, Value gradient) { result[input] = gradient; }
  // What the input's gradient is to be added to, where it is of the input's type: the rule's result then has both.
  // 0 where there is nothing to add.
  Value take_sum(size_t input);
  bool took_sum(size_t input) const { return took_[input] != 0; }
  // The constant 0, [1] in the type of the first result.
  Value zero() const;
  // `x` in the storage type of `like`: a gradient has the type of its value.
  Value cast_like(Value x, Value like) const;

  std::vector<Value> result;  // one per input, 0 = none

 private:
  Graph& graph_;
  const Node& node_;
  std::span<const Value> output_gradients_;
  std::span<const char> needed_;
  std::span<const Value> so_far_;
  std::vector<char> took_;
};

// Bound tensors of one node, ready for a kernel. Absent tensors have data NULL.
struct Launch {
  lk_context* context;
  std::span<const lk_tensor> in;
  std::span<lk_tensor> out;
  const Attrs& attrs;
};

struct OpDef {
  const char* name;  // "rope/1"
  std::vector<Desc> (*infer)(const Infer&);
  void (*gradient)(Gradient&) = nullptr;  // nullptr: no gradient flows through; none ever does through integers
  lk_status (*launch)(const Launch&) = nullptr;
  bool alias = false;                 // output 0 is input 0 with another shape: no kernel runs
  int channels_last_input = -1;       // input that is a convolution weight, kept [O, K..., I] in memory
  std::vector<size_t> in_place = {};  // output i may share storage with input in_place[i] (updates)
  bool elementwise = false;           // an element of the output depends on the same element of inputs of its shape
  std::vector<size_t> lines_in = {}, lines_out = {};  // inputs and outputs that may lie in lines (lora_kernels.h)
};

const OpDef* find_op(std::string_view name);  // nullptr when unknown; host/ops/ops.cpp holds the list

}  // namespace lh
