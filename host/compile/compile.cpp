// Model to training step: adapters, loss, differentiation, then what makes it fast and small.
#include "compile/compile.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "graph/print.h"
#include "ops/ops.h"
#include "passes/differentiate.h"
#include "passes/fuse.h"
#include "passes/products.h"
#include "passes/prune.h"
#include "passes/recompute.h"
#include "passes/store_weights.h"

namespace lh {

namespace {

Value add_loss(Graph& graph, const StepOptions& options) {
  const Value output = graph.outputs.at("output");
  const Shape shape = graph.desc(output).shape;
  const Value target = graph.add_input("target", {DType::f32, shape});
  const Desc by_sample{DType::f32, {shape[0]}};
  Value weight, deltas;
  if (options.by_place)
    weight = graph.add_input("loss_weight", {DType::f32, shape.with(-1, 1)});
  else if (options.weighted)
    weight = graph.add_input("loss_weight", by_sample);
  if (options.loss == "mse" && !options.by_place) return graph.add(mse_op, {output, target, weight}, {}, 0)[0];
  const bool has_width = options.loss != "mse" && options.loss != "l1";
  if (has_width) deltas = graph.add_input("loss_delta", by_sample);
  const lk_loss_kind kind = options.loss == "mse" ? LK_MSE : has_width ? LK_PSEUDO_HUBER : LK_L1;
  return graph.add(loss_op, {output, target, weight, deltas}, {{"kind", int64_t{kind}}}, 0)[0];
}

std::vector<std::string> roles_of(const StepOptions& options) {
  if (options.text_encoders) return {"conditioner", "denoiser"};
  return {"denoiser"};
}

// The first scopes: their activations live longest, so dropping them gains most.
std::set<int32_t> chosen_scopes(const std::vector<int32_t>& all, double share) {
  const auto count = static_cast<size_t>(std::ceil(share * static_cast<double>(all.size())));
  return {all.begin(), all.begin() + static_cast<int64_t>(std::min(count, all.size()))};
}

// A gradient that has memory to itself, as what is bound to the trained tensors' section must: not another shape of a
// value, nor the gradient of two parameters at once.
Value in_own_memory(Graph& graph, Value gradient, std::set<Value>& given) {
  const auto makes = [&](const Node& node) { return node.outputs[0] == gradient; };
  const auto producer = std::ranges::find_if(graph.nodes, makes);
  const bool own = graph.info(gradient).kind == ValueKind::computed && given.insert(gradient).second &&
                   (producer == graph.nodes.end() || !producer->op->alias);
  return own ? gradient : graph.add(affine_op, {gradient}, {{"scale", 1.0}, {"shift", 0.0}}, 0)[0];
}

void show(const char* pass, const Graph& graph) {
  if (verbose("graph")) spdlog::info("graph after {}:\n{}", pass, print(graph));
}

}  // namespace

TrainGraph build_train_graph(const Model& model, const Sizes& sizes, const SelectAdapter& select,
                             const StepOptions& options) {
  TrainGraph result;
  Graph& graph = result.graph;

  // The plugin's ops, with shapes inferred as they are added.
  graph = model.build_chain(roles_of(options), sizes, options.compute);
  show("build", graph);

  // Without what the loss will not depend on, such as last layers of an encoder whose states are taken before them: an
  // adapter there would learn nothing.
  prune(graph);

  // One op for what one kernel does at once.
  fuse(graph);
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
  result.modules = adapt(graph, select, true);
  show("adapt", graph);

  // Loss, and gradients as further nodes. The first `forward_count` nodes stay the forward pass.
  const Value loss = add_loss(graph, options);
  graph.outputs["loss"] = loss;
  prune(graph);
  const size_t forward_count = graph.nodes.size();
  const Value loss_scale = graph.add_input("loss_scale", {DType::f32, {1}});
  std::vector<Value> trained;
  for (const AdaptedModule& m : result.modules)
    for (const AdaptedTensor& tensor : m.tensors) trained.push_back(tensor.value);
  for (const std::string& name : options.base_gradients) {
    const auto it = graph.params.find(name);
    if (it == graph.params.end()) fail(Code::data, "the denoiser does not use a weight '{}'", name);
    trained.push_back(it->second);
  }
  std::set<Value> given;
  for (const auto& [parameter, gradient] : differentiate(graph, loss, loss_scale, trained)) {
    const std::string& name = graph.info(parameter).name;
    if (!gradient) fail(Code::plugin, "the loss does not depend on '{}'", name);
    graph.outputs["grad." + name] = in_own_memory(graph, gradient, given);
  }
  show("differentiate", graph);

  // Drop activations of the chosen scopes and compute them again in the backward pass.
  const std::vector<int32_t> scopes = checkpoint_scopes(graph);
  const std::set<int32_t> chosen = chosen_scopes(scopes, options.recompute);
  if (!chosen.empty()) recompute(graph, forward_count, chosen);
  result.checkpoint_scopes = static_cast<int64_t>(scopes.size());
  result.recomputed_scopes = static_cast<int64_t>(chosen.size());
  prune(graph);
  show("recompute", graph);

  // Last, as it looks at who reads what: weights that stay on the host come in time for each pass.
  stream(graph, options.streaming);
  return result;
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

void require_plain_latents(const Graph& denoiser, const Recipe& recipe) {
  const Shape& latents = denoiser.desc(denoiser.inputs.at("latents")).shape;  // [B, H, W, C]
  const int64_t channels = latents[latents.rank() - 1];
  if (channels == recipe.latents.channels) return;
  fail(Code::data,
       "this {} model takes {} channels where the latents of an image have {}: it is also given a mask or another "
       "image, as models for inpainting and editing are, and cannot be trained or sampled here. Train on the base "
       "model; its LoRA fits this one too where their blocks are the same",
       recipe.family, channels, recipe.latents.channels);
}

void make_forward(Graph& graph, const Model& model, const SelectAdapter& select) {
  fuse(graph);
  store_weights(graph, [&](const std::string& weight) { return model.weight_form(weight); });
  multiply_in(graph, model.products(), [&](const std::string& weight) { return model.is_adapted(weight); });
  adapt(graph, select, false);
  prune(graph);
}

std::set<Value> external_to_step(const Graph& graph) {
  std::set<Value> values = parameters(graph);
  for (const auto& [name, v] : graph.inputs) values.insert(v);
  for (const auto& [name, v] : graph.outputs)
    if (name.starts_with("grad.")) values.insert(v);
  return values;
}

}  // namespace lh
