#include "compile/slider.h"

#include <numeric>
#include <vector>

#include "compile/joined_passes.h"
#include "ops/ops.h"

namespace lh {
namespace {

class Emit {
 public:
  explicit Emit(Graph& graph) : graph_(graph) {}
  Value operator()(const OpDef& op, std::vector<Value> inputs, Attrs attrs = {}) const {
    return graph_.add(op, std::move(inputs), std::move(attrs), 0)[0];
  }
  Value affine(Value v, double scale, double shift) const {
    return (*this)(affine_op, {v}, {{"scale", scale}, {"shift", shift}});
  }
  const Shape& shape(Value v) const { return graph_.desc(v).shape; }

 private:
  Graph& graph_;
};

// Of a whole tensor; mean and deviation are [1, ..., 1].
struct Spread {
  Value mean, centred, deviation;
};

Spread spread_of(const Emit& emit, Value v) {
  std::vector<int64_t> axes(static_cast<size_t>(emit.shape(v).rank()));
  std::iota(axes.begin(), axes.end(), int64_t{0});
  const Value mean = emit(mean_op, {v}, {{"axes", axes}}), centred = emit(sub_op, {v, mean});
  const Value squares = emit(sum_op, {emit(square_op, {centred})}, {{"axes", axes}});
  const auto count = static_cast<double>(emit.shape(v).numel());
  return {mean, centred, emit(sqrt_op, {emit.affine(squares, 1 / (count - 1), 0)})};
}

// v with the mean and the deviation of another tensor.
Value spread_like(const Emit& emit, Value v, const Spread& like) {
  const Spread own = spread_of(emit, v);
  const Value even = emit(div_op, {own.centred, emit.affine(own.deviation, 1, 1e-8)});
  return emit(add_op, {emit(mul_op, {even, like.deviation}), like.mean});
}

}  // namespace

void slide(TrainGraph& step, const Graph& base, const TrainGraph& mirrored, const Recipe& recipe,
           const SliderConfig& slider) {
  Graph& graph = step.graph;
  const std::optional<Graph> straight = slider.anchor_class ? std::optional(graph) : std::nullopt;
  JoinedPasses passes(graph);
  const Emit emit(graph);
  const auto about = [&](const std::string& front, Value target = {}) -> InputOf {
    return [&graph, &recipe, front, target](const std::string& name, const Desc& desc) {
      if (name == "target") return target;
      const bool own = recipe.of_prompt(name) || name == "loss_weight";
      return shared_input(graph, own ? front + name : name, desc);
    };
  };
  const Value positive = passes.say(base, about(positive_front)), negative = passes.say(base, about(negative_front));
  const Value way = emit.affine(emit(sub_op, {positive, negative}), slider.guidance_strength, 0);
  const Value neutral = passes.say(base, about(""));
  const Spread like = spread_of(emit, neutral);
  const Value forth = spread_like(emit, emit(add_op, {neutral, way}), like);
  const Value back = spread_like(emit, emit(sub_op, {neutral, way}), like);
  passes.learn(mirrored.graph, about("", back));
  if (straight) {
    const Value anchor = passes.say(base, about(anchor_front));
    passes.learn(mirrored.graph, about(anchor_front, anchor));
    passes.learn(*straight, about(anchor_front, anchor));
  }
  passes.give_last("target", forth);
  passes.finish();
  graph.outputs["loss"] = emit.affine(graph.outputs.at("loss"), 0.5, 0);
}

}  // namespace lh
