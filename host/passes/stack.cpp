#include "passes/stack.h"

#include <algorithm>
#include <map>

#include "graph/op.h"
#include "ops/ops.h"

namespace lh {
namespace {

struct NoForm {};  // an op that cannot be stacked

using Dims = std::vector<int64_t>;

Dims dims_of(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

class Stack {
 public:
  Stack(const Graph& from, const Stacking& how) : from_(from), how_(how), to_(from.compute) {}

  Graph run() {
    for (uint32_t id = 1; id <= from_.value_count(); ++id) take(Value{id});
    for (const Node& node : from_.nodes) add(node);
    for (const auto& [name, value] : from_.outputs) to_.outputs[name] = result(name, value);
    return std::move(to_);
  }

 private:
  bool many() const { return how_.count > 0; }
  bool is_stacked(Value v) const { return stacked_.contains(v); }

  Shape with_count(const Shape& shape) const {
    Dims dims = dims_of(shape);
    if (many()) dims.insert(dims.begin(), how_.count);
    return Shape(std::move(dims));
  }

  Value emit(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {}) {
    return to_.add(op, std::move(inputs), std::move(attrs), 0)[0];
  }

  Value permuted(Value v, Dims axes) {
    if (many()) {
      for (int64_t& axis : axes) ++axis;
      axes.insert(axes.begin(), 0);
    }
    return emit(permute_op, {v}, {{"axes", axes}});
  }

  // Inputs and constants.
  void take(Value v) {
    const ValueInfo& info = from_.info(v);
    if (info.kind == ValueKind::constant) made_[v] = to_.add_constant(info.constant);
    if (info.kind != ValueKind::input) return;
    if (how_.shared.contains(info.name)) {
      made_[v] = to_.add_input(info.name, info.desc);
      return;
    }
    Shape shape = info.desc.shape;
    const bool reordered = how_.reordered.contains(info.name);
    if (reordered) shape = Shape{shape[0], shape[2], shape[3], shape[1]};
    const Value input = to_.add_input(info.name, {info.desc.dtype, with_count(shape)});
    made_[v] = reordered ? permuted(input, {0, 3, 1, 2}) : input;
    stacked_.insert(v);
  }

  // A value that stands for one tensor becomes one that stands for all.
  Value spread(Value v) {
    const Shape& shape = from_.desc(v).shape;
    Dims one = dims_of(shape);
    one.insert(one.begin(), 1);
    const Value unit = emit(reshape_op, {made_.at(v)}, {{"shape", one}});
    return emit(expand_op, {unit}, {{"shape", dims_of(with_count(shape))}});
  }

  Value result(const std::string& name, Value value) {
    Value made = made_.at(value);
    if (many() && !is_stacked(value)) made = spread(value);
    return how_.reordered.contains(name) ? permuted(made, {0, 2, 3, 1}) : made;
  }

  void add(const Node& node) {
    const bool any = std::ranges::any_of(node.inputs, [&](Value v) { return is_stacked(v); });
    std::vector<Value> inputs;
    for (const Value v : node.inputs) inputs.push_back(v ? made_.at(v) : Value{});
    Attrs attrs = node.attrs;
    if (any && many()) adapt(node, inputs, attrs);
    std::vector<Value> outputs = to_.add(*node.op, std::move(inputs), std::move(attrs), 0);
    if (any && many() && node.op == &quantize_blockwise_op) outputs[1] = of_each(outputs[1]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      made_[node.outputs[i]] = outputs[i];
      if (any) stacked_.insert(node.outputs[i]);
    }
  }

  // Operands of lower rank than the result get axes of 1 behind N, so that broadcasting goes on from the right.
  void align(const Node& node, std::vector<Value>& inputs) {
    int64_t rank = 0;
    for (const Value v : node.inputs) rank = std::max(rank, from_.desc(v).shape.rank());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Shape& own = from_.desc(node.inputs[i]).shape;
      if (!is_stacked(node.inputs[i]) || own.rank() == rank) continue;
      Dims dims(static_cast<size_t>(rank - own.rank()), 1);
      dims.insert(dims.begin(), how_.count);
      dims.insert(dims.end(), own.dims().begin(), own.dims().end());
      inputs[i] = emit(reshape_op, {inputs[i]}, {{"shape", dims}});
    }
  }

  // Factors of blocks of 256 elements, [N B] as the ops have them, and [N, B] as the states of N tensors. A block of
  // two tensors has no such form.
  Value of_each(Value factors) {
    const int64_t all = to_.desc(factors).shape.numel();
    return emit(reshape_op, {factors}, {{"shape", Dims{how_.count, all / how_.count}}});
  }
  Value of_all(Value factors) { return emit(reshape_op, {factors}, {{"shape", Dims{-1}}}); }
  void require_whole_blocks(Value v) const {
    if (from_.desc(v).shape.numel() % 256 != 0) throw NoForm{};
  }

  static int64_t moved(int64_t axis) { return axis < 0 ? axis : axis + 1; }

  void adapt(const Node& node, std::vector<Value>& inputs, Attrs& attrs) {
    const OpDef* op = node.op;
    const auto all_stacked = [&] {
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!is_stacked(node.inputs[i])) inputs[i] = spread(node.inputs[i]);
    };
    if (op == &adamw_update_op) return;  // lr and step are shared
    if (op == &quantize_blockwise_op || op == &dequantize_blockwise_op) {
      require_whole_blocks(node.inputs[0]);
      all_stacked();
      if (op == &dequantize_blockwise_op) inputs[1] = of_all(inputs[1]);
      return;
    }
    if (op->elementwise) return align(node, inputs);
    if (op == &sum_op || op == &mean_op || op == &amax_op) {
      Dims axes = attrs.list("axes");
      for (int64_t& axis : axes) axis = moved(axis);
      attrs.set("axes", axes);
    } else if (op == &reshape_op || op == &expand_op) {
      attrs.set("shape", dims_of(with_count(from_.desc(node.outputs[0]).shape)));
    } else if (op == &permute_op) {
      Dims axes = attrs.list("axes");
      for (int64_t& axis : axes) ++axis;
      axes.insert(axes.begin(), 0);
      attrs.set("axes", axes);
    } else if (op == &matmul_op || op == &newton_schulz_op || op == &concat_op) {
      if (op == &matmul_op && repeats_an_operand(node)) throw NoForm{};
      all_stacked();
      if (op == &concat_op) attrs.set("axis", moved(attrs.i("axis")));
    } else if (op == &slice_op || op == &split_op) {
      attrs.set("axis", moved(attrs.i("axis")));
    } else if (op == &pad_op) {
      for (const char* side : {"before", "after"}) {
        Dims lengths = attrs.list(side);
        lengths.insert(lengths.begin(), 0);
        attrs.set(side, lengths);
      }
    } else if (op != &detach_op && op != &softmax_op && op != &top_k_op &&
               op != &every_op) {  // these work along the last axis
      throw NoForm{};
    }
  }

  // One matrix for a batch would have to be one for all of the stack.
  bool repeats_an_operand(const Node& node) const {
    const Shape &a = from_.desc(node.inputs[0]).shape, &b = from_.desc(node.inputs[1]).shape;
    for (int64_t i = 0; i + 2 < a.rank(); ++i)
      if (a[i] != b[i]) return true;
    return false;
  }

  const Graph& from_;
  const Stacking& how_;
  Graph to_;
  std::map<Value, Value> made_;
  std::set<Value> stacked_;
};

}  // namespace

std::optional<Graph> stacked(const Graph& graph, const Stacking& how) try {
  return Stack(graph, how).run();
} catch (const NoForm&) {
  return std::nullopt;
}

}  // namespace lh
