#include "support/toy_step.h"

#include "run/weights.h"
#include "run/workspace.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "train/step.h"

namespace lh::test {

namespace {

ModelConfig config_of(const std::filesystem::path& path, const std::string& dtype, const std::string& products) {
  ModelConfig config = single(path);
  config.dtype = dtype;
  config.products = products;
  return config;
}

}  // namespace

TrainGraph toy_graph(const Model& model, const ActivationChoice& choice, const Streaming& streaming) {
  NetworkConfig network;
  network.linear = 4;
  network.dropout = 0.1;  // a mask that recomputation drew anew would change the gradients
  const AdapterSelection select(network, model.recipe(), 3);
  Sizes sizes{{"batch", 2}, {"height", 16}, {"width", 16}, {"text_length", 32}};
  if (model.recipe().latents.time) sizes["time"] = 2;
  return build_train_graph(model, sizes, select, {.activations = choice, .streaming = streaming});
}

OpenedModel::OpenedModel(const std::filesystem::path& path, const std::string& dtype, const std::string& products)
    : model(built_plugins(), config_of(path, dtype, products), "") {}

std::filesystem::path toy_denoiser() { return toy_folder() / "flux_toy.safetensors"; }

KeptWeights kept_weights(const Model& model) {
  const Graph graph = toy_graph(model, {}).graph;
  KeptWeights k{.bytes = weight_bytes(graph, weight_names(graph, model.checkpoint()))};
  for (const auto& [name, value] : graph.params) {
    const ValueInfo& info = graph.info(value);
    if (!is_quantised(info.desc.dtype)) continue;
    ++k.rounded;
    k.elements += info.desc.shape.numel();
    if (info.scale) k.factors += graph.desc(info.scale).shape.numel();
  }
  return k;
}

std::vector<StreamableBlock> toy_blocks(const Model& model) {
  const TrainGraph plain = toy_graph(model, {}, Streaming{});
  return streamable_blocks(plain.graph, weight_names(plain.graph, model.checkpoint()));
}

TrainGraph toy_graph(const Model& model, const ActivationChoice& choice, int64_t streamed) {
  return toy_graph(model, choice, streamed > 0 ? spread(toy_blocks(model), streamed) : Streaming{});
}

StepInputs toy_inputs(const Graph& g) {
  StepInputs in{{}, 9};
  for (const auto& [name, value] : g.inputs)
    if (name != "step" && name != "loss_scale")
      in.tensors[name] = ramp(g.desc(value).shape, static_cast<int64_t>(in.tensors.size()) + 1);
  in.tensors["timestep"] = HostTensor::from_floats({2}, std::vector<float>{0.25f, 0.75f});
  return in;
}

Ran run_step(const Model& model, const ActivationChoice& choice, int64_t streamed) {
  Device device(tested_device());
  TrainStep step(toy_graph(model, choice, streamed));
  const Graph& g = step.train_graph().graph;
  Adapters adapters(g, step.train_graph().modules);
  const int64_t constants = std::max<int64_t>(1, constant_bytes(g));  // memory for none is a byte
  const int64_t predicted = weight_bytes(g, weight_names(g, model.checkpoint())) + adapters.bytes() +
                            step.arena_bytes() + step.input_bytes() + constants + plan_alignment +
                            workspace_bytes(device, g, step.plan());
  const Weights weights(device, model.checkpoint(), g);
  adapters.allocate(device);
  adapters.initialise(1);
  int64_t seed = 0;
  for (const AdapterTensor& t : adapters.tensors())
    if (t.name.ends_with("lora_up.weight")) adapters.upload("p", t, ramp(t.shape, ++seed));
  const GuardedArena arena(device, step.arena_bytes());
  const Workspace workspace(device, workspace_bytes(device, g, step.plan()));
  const DeviceMemory inputs(device, step.input_bytes(), "inputs"), loss_scale(device, plan_alignment, "loss scale");
  const StagingMemory host(device, std::max<int64_t>(1, step.host_bytes()));
  const float one = 1;
  loss_scale.upload(0, &one, sizeof one);
  step.bind(device, {arena.data(), inputs.data(), loss_scale.data(), host.data()}, weights, adapters);
  step.run(toy_inputs(g));
  arena.expect_untouched();
  EXPECT_EQ(device.peak(), predicted + 2 * GuardedArena::guard);
  Ran ran{step.loss(), {}};
  for (const AdapterTensor& t : adapters.tensors()) ran.gradients[t.name] = adapters.download("g", t);
  return ran;
}

}  // namespace lh::test
