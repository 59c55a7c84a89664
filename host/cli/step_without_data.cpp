#include "cli/step_without_data.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/error.h"
#include "data/further_images.h"
#include "encode/try_model.h"
#include "io/synthetic.h"
#include "train/memory_text.h"
#include "train/prepare.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// Rows of text: as many as asked for; of the model's own encoders, or of its longest tokenizer where they are not
// there.
Sizes text_lengths(Device& device, const Model& model, int64_t asked) {
  int64_t longest = asked;
  bool complete = asked == 0;
  for (const std::string& encoder : model.recipe().encoders()) complete &= model.checkpoint().has(encoder);
  for (const auto& [encoder, spec] : model.recipe().tokenizers)
    if (asked == 0) longest = std::max(longest, spec.length);
  if (complete) return TextEncoding(device, model, DType::f32, {}).most_lengths();
  Sizes lengths;
  for (const auto& [name, spec] : model.recipe().inputs)
    if (spec.source == InputSpec::Source::conditioner) lengths[length_size(name)] = longest;
  return lengths;
}

// A square image, or a clip of such frames, as the first dataset would have them, with sound where the model makes it.
Bucket square(const Config& config, const Recipe& recipe) {
  const LatentSpec& latents = recipe.latents;
  const DatasetConfig& dataset = config.datasets.front();
  if (dataset.num_frames > 1 && !latents.time)
    fail(Code::config, "datasets[0].num_frames: {}: this is a model of images, expected 1", dataset.num_frames);
  const int64_t frames = latents.frames(latents.times(dataset.num_frames));
  return {dataset.resolution.front(), dataset.resolution.front(), frames,
          recipe.sound ? recipe.sound->rows_of(frames) : 0};
}

// The configuration, once the model can be opened.
Config tried(const Options& options, std::optional<HollowCheckpoint>& hollow) {
  Config config = options.config;
  if (!options.input.empty()) config.model.name_or_path = hollow.emplace(options.input).path();
  try_model(*options.registry, config.model, config.plugin, compute_dtype(config.train.dtype), keys_of_images(config));
  return config;
}

}  // namespace

HollowCheckpoint::HollowCheckpoint(const fs::path& key_list)
    : path_(fs::temp_directory_path() / fmt::format("lora-host-hollow-{}.safetensors", getpid())) {
  make_hollow_checkpoint(key_list, path_);
}

HollowCheckpoint::~HollowCheckpoint() {
  std::error_code none;
  fs::remove(path_, none);
}

StepWithoutData::StepWithoutData(const Options& options, const std::string& device_name, World& world)
    : config(tried(options, hollow)),
      device(device_name, config.train.deterministic),
      model(*options.registry, config.model, config.plugin, keys_of_images(config)),
      compute(compute_dtype(config.train.dtype)),
      selection(config.network, model.recipe(), 1, model.checkpoint().weights(), config.train.train_text_encoder,
                std::make_shared<Adapter>(*options.registry, config.network.type, config.network.network_kwargs)),
      shape{square(config, model.recipe()), text_lengths(device, model, options.text_length),
            config.datasets.front().batch_size_at(0, config.train.batch_size)},
      registry_(*options.registry),
      world_(world) {}

const KnownRates& StepWithoutData::rates() {
  if (!rates_) rates_ = known_rates(device, compute, memory_limit(config, device), model.products());
  return *rates_;
}

PlanOptions StepWithoutData::options_for(const MemoryChoice& choice) {
  const SliderPrompts slider(config);
  return {.step = {.compute = compute,
                   .loss = config.train.loss,
                   .weighted = slider.any() || TrainingObjective(config.train, model.recipe()).weighted(),
                   .by_place = !slider.any() && model.recipe().starts_clips(),
                   .activations = choice.activations(),
                   .rates = choice.recompute > 0 ? rates().rates : Rates{},
                   .max_loss = config.train.max_loss,
                   .text_encoders = selection.text_encoders(),
                   .streaming = streaming_,
                   .slider = slider.any() ? std::optional(slider.config()) : std::nullopt,
                   .differential_guidance = config.train.target_distance()},
          .states = choice.states_at(),
          .encoder_sizes = encoder_sizes(),
          .accumulate = world_.size() > 1,
          .processes = world_.size(),
          .rank = world_.rank(),
          .shares_base = shares_base(),
          .norm_limit = config.network.scale_weight_norms};
}

Sizes StepWithoutData::encoder_sizes() { return selection.text_encoders() ? PromptTokens(model).sizes() : Sizes{}; }

Tokens StepWithoutData::tokens() {
  if (!selection.text_encoders()) return {};
  return *PromptTokens(model).of("a photo of a lighthouse");
}

TrainPlan StepWithoutData::plan(const MemoryChoice& choice) {
  return {device, model, registry_, config.train, selection, {shape}, options_for(choice)};
}

MemoryPlanner StepWithoutData::planner(const TrainPlan& base) {
  return {base,
          model,
          selection,
          options_for({}),
          config,
          rates().rates,
          host_memory_for(device, config, world_.local_size())};
}

TrainPlan StepWithoutData::fitted() {
  TrainPlan base = plan(MemoryWishes(config, 0).least_kept());
  const bool asked = !config.memory.budget.empty();
  const bool all_here = config.memory.stream == "auto" || config.memory.stream == "0";
  if (!asked && all_here && !shares_base()) return base;
  int64_t limit = memory_limit(config, device);
  if (shares_base()) {
    KnownRates agreed = rates();
    agree_on_plan(world_, limit, agreed.rates);
    use(agreed);
  }
  MemoryPlanner planner = this->planner(base);
  const std::optional<PlannedMemory> best = planner.best(limit);
  if (!best) fail(Code::resource, "{}", does_not_fit(planner, config, model, limit));
  streaming_ = planner.streaming(best->choice.streamed);
  if (asked) device.limit_memory(limit);
  return plan(best->choice);
}

}  // namespace lh
