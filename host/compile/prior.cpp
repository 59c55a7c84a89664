#include "compile/prior.h"

#include "compile/joined_passes.h"
#include "ops/ops.h"

namespace lh {
namespace {

constexpr const char* prior_output = "prior.output";

}  // namespace

Value add_prior_loss(Graph& graph, Value loss, const std::string& kind) {
  const Value output = graph.outputs.at("output");
  const Shape shape = graph.desc(output).shape;
  const Value prior = graph.add_input(prior_output, {DType::f32, shape});
  const Value weight = graph.add_input(prior_weight, {DType::f32, shape.with(-1, 1)});
  const lk_loss_kind by = kind == "l1" ? LK_L1 : LK_MSE;
  const Value kept = graph.add(loss_op, {output, prior, weight, {}}, {{"kind", int64_t{by}}}, 0)[0];
  return graph.add(add_op, {loss, kept}, {}, 0)[0];
}

void put_prior_in_front(TrainGraph& step, const Graph& base) {
  Graph& graph = step.graph;
  JoinedPasses passes(graph);
  passes.give_last(prior_output, passes.say(base, [&](const std::string& name, const Desc& desc) {
    return shared_input(graph, name, desc);
  }));
  passes.finish();
}

}  // namespace lh
