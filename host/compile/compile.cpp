// Model to training step: adapters, loss, differentiation, then what makes it fast and small.
#include "compile/compile.h"

#include <algorithm>
#include <limits>

#include "compile/preserve.h"
#include "compile/prior.h"
#include "compile/slider.h"
#include "core/error.h"
#include "core/log.h"
#include "graph/print.h"
#include "ops/ops.h"
#include "passes/delay_gradients.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/fuse_activations.h"
#include "passes/fuse_pointwise.h"
#include "passes/fuse_residuals.h"
#include "passes/group_gradients.h"
#include "passes/group_layers.h"
#include "passes/products.h"
#include "passes/prune.h"
#include "passes/recompute.h"
#include "passes/store_weights.h"
#include "run/offloadable.h"

namespace lh {

namespace {

// said + factor (target - said), as a number: the gradient of a loss is taken at a place that is as many times as far
// off.
Value moved_away(Graph& graph, Value target, Value output, double factor) {
  Value said = graph.add(detach_op, {output}, {}, 0)[0];
  if (graph.desc(said).dtype != DType::f32)
    said = graph.add(cast_op, {said}, {{"dtype", static_cast<int64_t>(DType::f32)}}, 0)[0];
  const Value way = graph.add(sub_op, {target, said}, {}, 0)[0];
  return graph.add(add_op, {said, graph.add(affine_op, {way}, {{"scale", factor}, {"shift", 0.0}}, 0)[0]}, {}, 0)[0];
}

// The loss of one of the model's outputs against the input `target`. weight: of each sample, or each of its places.
struct LossPart {
  const char *output, *target;
  Value weight, deltas;
  bool by_place = false;
};
Value loss_of(Graph& graph, const StepOptions& options, const LossPart& part) {
  const Value output = graph.outputs.at(part.output);
  Value target = graph.add_input(part.target, {DType::f32, graph.desc(output).shape});
  if (options.differential_guidance != 1) target = moved_away(graph, target, output, options.differential_guidance);
  if (options.loss == "mse" && !part.by_place) return graph.add(mse_op, {output, target, part.weight}, {}, 0)[0];
  const lk_loss_kind kind = options.loss == "mse" ? LK_MSE : part.deltas ? LK_PSEUDO_HUBER : LK_L1;
  return graph.add(loss_op, {output, target, part.weight, part.deltas}, {{"kind", int64_t{kind}}}, 0)[0];
}

// Of what is seen and, where the model makes it, of what is heard.
Value add_loss(Graph& graph, const StepOptions& options) {
  const Shape shape = graph.desc(graph.outputs.at("output")).shape;
  const Desc by_sample{DType::f32, {shape[0]}};
  LossPart seen{.output = "output", .target = "target", .weight = {}, .deltas = {}, .by_place = options.by_place};
  if (options.by_place)
    seen.weight = graph.add_input("loss_weight", {DType::f32, shape.with(-1, 1)});
  else if (options.weighted)
    seen.weight = graph.add_input("loss_weight", by_sample);
  if (options.loss != "mse" && options.loss != "l1") seen.deltas = graph.add_input("loss_delta", by_sample);
  const Value loss = loss_of(graph, options, seen);
  if (!graph.outputs.contains("sound_output")) return loss;
  const Value heard = loss_of(graph, options,
                              {.output = "sound_output",
                               .target = "sound_target",
                               .weight = graph.add_input("sound_weight", by_sample),
                               .deltas = seen.deltas});
  return graph.add(add_op, {loss, heard}, {}, 0)[0];
}

std::vector<std::string> roles_of(const StepOptions& options) {
  if (options.text_encoders) return {"conditioner", "denoiser"};
  return {"denoiser"};
}

// Gradients that have memory to themselves, as what is bound to the trained tensors' section must: not another shape of
// a value, nor the gradient of two parameters at once.
class OwnMemory {
 public:
  explicit OwnMemory(Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes)
      if (node.op->alias) taken_.insert(node.outputs.begin(), node.outputs.end());
  }

  Value operator()(Value gradient) {
    const bool own = graph_.info(gradient).kind == ValueKind::computed && taken_.insert(gradient).second;
    return own ? gradient : graph_.add(affine_op, {gradient}, {{"scale", 1.0}, {"shift", 0.0}}, 0)[0];
  }

 private:
  Graph& graph_;
  std::set<Value> taken_;
};

// Of operations, rather than of the pair's own.
bool is_built(const AdaptedModule& module) { return module.form.kind != AdapterForm::Kind::pair; }

void show(const char* pass, const Graph& graph) {
  if (verbose("graph")) log_info("graph after {}:\n{}", pass, print(graph));
}

}  // namespace

// Forward and backward pass, with all kept and all weights on the device.
StepBeforeRecompute::Pass StepBeforeRecompute::build_pass(const Model& model, const std::vector<std::string>& roles,
                                                          const Sizes& sizes, const SelectAdapter& select,
                                                          const StepOptions& options) {
  Pass pass;
  Graph& graph = pass.all_kept.graph;

  // The plugin's ops, with shapes inferred as they are added.
  graph = model.build_chain(roles, sizes, options.compute);
  show("build", graph);

  // Without what the loss will not depend on, such as last layers of an encoder whose states are taken before them: an
  // adapter there would learn nothing.
  prune(graph);

  // One op for what one kernel does at once.
  fuse(graph, options.base_gradients);
  show("fuse", graph);
  // Weights of linears in the types they are kept in: fp8 stays fp8.
  store_weights(graph, [&](const std::string& weight) -> std::optional<WeightForm> {
    if (std::ranges::find(options.base_gradients, weight) != options.base_gradients.end()) return std::nullopt;
    return model.weight_form(weight);
  });
  show("store_weights", graph);
  multiply_in(graph, model.products(), [&](const std::string& weight) { return model.is_adapted(weight); });
  show("products", graph);

  // Adapters on the linears whose names match; from here on some parameters are trained.
  pass.all_kept.left_out = left_out(graph, select);
  pass.all_kept.modules = adapt(graph, select, true);
  show("adapt", graph);

  // Loss, and gradients as further nodes.
  Value loss = add_loss(graph, options);
  if (options.keeps_masked) loss = add_prior_loss(graph, loss, options.loss);
  if (options.max_loss > 0)
    loss = graph.add(clamp_op, {loss},
                     {{"low", double{std::numeric_limits<float>::lowest()}}, {"high", options.max_loss}}, 0)[0];
  graph.outputs["loss"] = loss;
  prune(graph);
  // Layers with adapters that read one x are one op, forward and backward.
  group_layers(graph);
  show("group_layers", graph);
  fuse_residuals(graph);
  show("fuse_residuals", graph);
  const Value loss_scale = graph.add_input("loss_scale", {DType::f32, {1}});
  std::vector<Value> trained;
  for (const AdaptedModule& m : pass.all_kept.modules)
    for (const AdaptedTensor& tensor : m.tensors) trained.push_back(tensor.value);
  for (const std::string& name : options.base_gradients) {
    const auto it = graph.params.find(name);
    if (it == graph.params.end()) fail(Code::data, "the denoiser does not use a weight '{}'", name);
    trained.push_back(it->second);
  }
  const std::map<Value, Value> gradients = differentiate(graph, loss, loss_scale, trained);
  OwnMemory in_own_memory(graph);
  for (const auto& [parameter, gradient] : gradients) {
    const std::string& name = graph.info(parameter).name;
    if (!gradient) fail(Code::plugin, "the loss does not depend on '{}'", name);
    graph.outputs["grad." + name] = in_own_memory(gradient);
  }
  show("differentiate", graph);

  prune(graph);
  group_gradients(graph);
  show("group_gradients", graph);
  // What adapters are built of is elementwise to a large part.
  if (std::ranges::any_of(pass.all_kept.modules, is_built)) {
    fuse_chains(graph);
    show("fuse_chains", graph);
  }
  return pass;
}

StepBeforeRecompute::StepBeforeRecompute(const Model& model, const Sizes& sizes, const SelectAdapter& select,
                                         const StepOptions& options)
    : recipe_(model.recipe()),
      rates_(options.rates),
      pass_(build_pass(model, roles_of(options), sizes, select, options)),
      keeps_masked_(options.keeps_masked),
      slider_(options.slider) {
  if (!options.preserves && !keeps_masked_ && !slider_) return;
  const auto no_adapter = [](const std::string&) { return nullptr; };
  before_ = build_sample_graph(model, sizes, no_adapter, options.compute);
  if (slider_) mirrored_ = build_pass(model, {"denoiser"}, sizes, at_strength(select, -1), options);
  if (!options.preserves) return;
  StepOptions kept = options;
  kept.loss = "mse", kept.weighted = true, kept.by_place = kept.keeps_masked = false;
  kept.max_loss = 0, kept.differential_guidance = 1;
  preserving_ = build_pass(model, {"denoiser"}, sizes, select, kept);
}

// What is cheap to make again in the backward pass is dropped, as much as is asked for, and of what is kept so much
// waits in host memory.
TrainGraph StepBeforeRecompute::kept_as(Pass& pass, const ActivationChoice& choice) const {
  TrainGraph result = pass.all_kept;
  Graph& graph = result.graph;
  if (choice.recompute > 0) {
    if (!pass.ladder)
      pass.ladder.emplace(graph, forward_count(graph), plan_memory(graph, external_to_step(graph)), rates_);
    recompute(graph, forward_count(graph), pass.ladder->dropped(choice.recompute));
    result.activations = pass.ladder->kept(choice.recompute);
    prune(graph);
    show("recompute", graph);
  }
  fuse_activations(graph);
  show("fuse_activations", graph);
  if (choice.offload > 0) {
    const auto all_of = [](const Graph& g) { return offloadable(g, external_to_step(g)); };
    if (!pass.offloadable) pass.offloadable = offloaded_bytes(pass.all_kept.graph, all_of(pass.all_kept.graph));
    const auto bytes = static_cast<int64_t>(choice.offload * static_cast<double>(*pass.offloadable));
    offload(graph, evenly(graph, all_of(graph), bytes));
    show("offload", graph);
  }
  return result;
}

TrainGraph StepBeforeRecompute::with(const ActivationChoice& choice, const Streaming& streaming) {
  TrainGraph result = kept_as(pass_, choice);
  if (keeps_masked_) {
    put_prior_in_front(result, *before_);
    show("prior", result.graph);
  }
  if (preserving_) {
    preserve(result, *before_, kept_as(*preserving_, choice), recipe_);
    show("preserve", result.graph);
  }
  if (slider_) {
    slide(result, *before_, kept_as(*mirrored_, choice), recipe_, *slider_);
    show("slide", result.graph);
  }

  // Where memory is asked for, each gradient is made where it takes the least.
  if (choice.recompute == 0 && choice.offload == 0 && streaming.weights.empty()) {
    delay_gradients(result.graph);
    show("delay_gradients", result.graph);
  }
  // Last, as it looks at who reads what: weights that stay on the host come in time for each pass.
  stream(result.graph, streaming);
  return result;
}

TrainGraph build_train_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select,
                             const StepOptions& options) {
  return StepBeforeRecompute(model, sizes, select, options).with(options.activations, options.streaming);
}

Graph build_loss_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select,
                       const StepOptions& options) {
  Graph graph = model.build_chain(roles_of(options), sizes, options.compute);
  prune(graph);
  make_forward(graph, model, select);
  const Value loss = add_loss(graph, options);
  graph.outputs = {{"loss", loss}};
  prune(graph);
  stream(graph, options.streaming);
  return graph;
}

Graph build_sample_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select, DType compute,
                         const SizeLists& lists, const Streaming& streaming) {
  Graph graph = model.build("denoiser", sizes, compute, lists);
  make_forward(graph, model, select);
  stream(graph, streaming);
  return graph;
}

void make_forward(Graph& graph, const Model& model, const SelectAdapter& select) {
  fuse(graph);
  store_weights(graph, [&](const std::string& weight) { return model.weight_form(weight); });
  multiply_in(graph, model.products(), [&](const std::string& weight) { return model.is_adapted(weight); });
  const bool built = std::ranges::any_of(adapt(graph, select, false), is_built);
  prune(graph);
  group_layers(graph);
  fuse_residuals(graph);
  fuse_activations(graph);
  if (built) fuse_chains(graph);
}

std::set<Value> external_to_step(const Graph& graph) {
  std::set<Value> values = parameters(graph);
  for (const auto& [name, v] : graph.inputs) values.insert(v);
  for (const auto& [name, v] : graph.outputs)
    if (name.starts_with("grad.")) values.insert(v);
  for (const auto& [there, kept] : offloaded_values(graph)) values.insert({there, kept});
  return values;
}

}  // namespace lh
