// Compiles a step for each shape and takes the largest of what they need.
#include "train/train_plan.h"

#include <algorithm>

#include "core/error.h"
#include "run/clip.h"
#include "run/feed.h"
#include "run/workspace.h"

namespace lh {

TrainPlan::TrainPlan(Device& device, const Model& model, const OptimizerRules& rules, const TrainSection& train,
                     const AdapterSelection& selection, const std::set<StepShape>& shapes, const PlanOptions& options) {
  const Recipe& recipe = model.recipe();
  const auto add = [&](const Graph& graph, int64_t arena) {
    also(arena, workspace_bytes(device, graph), constant_bytes(graph));
  };
  for (const StepShape& shape : shapes) {
    Sizes sizes = shape.sizes(recipe.latents, options.batch);
    sizes.insert(options.encoder_sizes.begin(), options.encoder_sizes.end());
    auto step = std::make_unique<TrainStep>(build_train_graph(model, sizes, selection, options.step));
    add(step->train_graph().graph, step->arena_bytes());
    steps[shape] = std::move(step);
  }
  const TrainGraph& first = steps.begin()->second->train_graph();
  require_plain_latents(first.graph, recipe);
  if (first.modules.empty())
    fail(Code::config,
         "network: no module is left to train. Check network_kwargs.only_if_contains and ignore_if_contains; this "
         "model's targets are {}",
         fmt::join(recipe.lora_targets, " and "));
  std::vector<std::string> names;
  for (const AdaptedModule& module : first.modules) names.push_back(module.name);
  selection.require_use(names);
  adapters = std::make_unique<Adapters>(first.graph, first.modules, options.accumulate);
  const Shape whole = adapters->whole().shape;
  std::vector<TrainedTensor> trained = adapters->trained();
  ParameterGroups groups(rules, train, trained);
  lr = groups.lr;
  update.emplace(groups.groups, std::move(trained));
  if (update->evaluates()) adapters->add_evaluation();
  for (const Graph* graph : update->graphs()) add(*graph, update->arena_bytes());
  if (options.norm_limit) {
    if (update->evaluates())
      fail(Code::config,
           "network.scale_weight_norms: optimizer '{}' saves other weights than it trains, which it would not reach. "
           "Remove "
           "it, or use another optimizer",
           rules.base().id());
    norm_limit = std::make_unique<NormLimit>(*adapters, *options.norm_limit);
    for (const Graph& graph : norm_limit->graphs()) add(graph, norm_limit->arena_bytes());
  }
  const int64_t clip = measured_workspace(device, [&] {
    const auto place = [](int64_t at, const Shape& shape) {  // only for the size: nothing is there
      return kernel_tensor({DType::f32, shape}, reinterpret_cast<void*>(at));
    };
    clip_gradients(device, place(1 << 20, whole), 1, place(256, {1}), place(512, {1}));
  });
  memory.workspace = std::max(memory.workspace, clip);
  memory.weights = weight_bytes(first.graph, weight_names(first.graph, model.checkpoint()));
  memory.adapters = adapters->bytes() + update->state_bytes();
  memory.small += update->number_bytes() + SCALARS + Feed::device_bytes(message_bytes());
}

void TrainPlan::also(int64_t arena, int64_t workspace, int64_t constants) {
  memory.activations = std::max(memory.activations, arena);
  memory.workspace = std::max(memory.workspace, workspace);
  memory.small += constants;
}

int64_t TrainPlan::message_bytes() const {
  int64_t most = 0;
  for (const auto& [bucket, step] : steps) most = std::max(most, step->input_bytes());
  return rates_bytes() + most;
}

const TrainGraph& TrainPlan::largest() const {
  return std::ranges::max_element(steps, {}, [](const auto& s) { return s.second->arena_bytes(); })
      ->second->train_graph();
}

}  // namespace lh
