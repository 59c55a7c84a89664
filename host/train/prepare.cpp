// Opens everything in order, then compiles with more and more recomputing until the step fits.
#include "train/prepare.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "config/run_settings.h"
#include "config/schedule_params.h"
#include "core/bytes.h"
#include "core/error.h"
#include "core/log.h"
#include "data/further_images.h"
#include "diffusion/training_guidance.h"
#include "encode/check_model.h"
#include "io/lora_file.h"
#include "run/card.h"
#include "run/workspace.h"
#include "train/memory_text.h"

namespace lh {

int64_t memory_limit(const Config& config, const Device& device) {
  constexpr int64_t libraries = 256 << 20;
  const int64_t asked = config.memory.budget.empty() ? config.memory_limit_mib << 20 : *size_of(config.memory.budget);
  if (device.stands_for_gpu()) return asked;
  const lk_device_info info = device.info();
  const int64_t there = device.is_cpu() ? info.memory_total : std::max<int64_t>(0, info.memory_free - libraries);
  return asked > 0 ? std::min(asked, there) : there;
}

DType encoder_dtype(const Device& device, DType compute) {
  const bool cpu = device.is_cpu() && !device.stands_for_gpu();
  return cpu || compute == DType::f32 ? DType::f32 : DType::bf16;
}

namespace {

void check_guidance(const TrainSection& train, const Recipe& recipe) {
  if (train.bypass_guidance_embedding && recipe.guided() && training_guidance(train, recipe) >= 0)
    fail(Code::config,
         "train.bypass_guidance_embedding: true: model family '{}' is told a guidance number in every step, and its "
         "plugin has no way around it. Set it to false; train.cfg_scale is the number, 1 unless set",
         recipe.family);
}

void check_masked_prior(const TrainSection& train) {
  if (!train.inverted_mask_prior) return;
  const char* other = train.train_text_encoder          ? "train.train_text_encoder"
                      : train.diff_output_preservation  ? "train.diff_output_preservation"
                      : train.blank_prompt_preservation ? "train.blank_prompt_preservation"
                                                        : nullptr;
  if (other != nullptr)
    fail(Code::config,
         "train.inverted_mask_prior: true: it is held against what the model said before for the same prompt, which it "
         "cannot be beside {}. Set one of them to false",
         other);
}

bool weighs_samples(const TrainSection& train, const Dataset& dataset) {
  return std::ranges::any_of(dataset.samples, [&](const Sample& sample) {
    return sample.loss_weight != 1 || (sample.is_reg && train.reg_weight != 1);
  });
}

// What of a run looks at the clip alone.
void check_sound(const Config& config, const Recipe& recipe, const Dataset& dataset) {
  if (config.model.with_sound && !recipe.sound)
    log_warning("datasets[].do_audio: true has no effect: model family '{}', {}, makes no sound", recipe.family,
                recipe.variant);
  if (std::ranges::none_of(dataset.samples, [](const Sample& sample) { return sample.bucket.sound > 0; })) return;
  const char* other = config.slider.on()                       ? "slider"
                      : config.train.diff_output_preservation  ? "train.diff_output_preservation"
                      : config.train.blank_prompt_preservation ? "train.blank_prompt_preservation"
                      : config.train.inverted_mask_prior       ? "train.inverted_mask_prior"
                                                               : nullptr;
  if (other != nullptr)
    fail(Code::config,
         "datasets[].do_audio: true: {} is held against what the model shows without the adapter, and not against what "
         "it sounds like. Leave one of them out",
         other);
}

void check_first_frames(const Config& config, const Recipe& recipe) {
  if (keys_of_images(config).contains(own_first_frame_key) && !recipe.shown_first_frames())
    log_warning(
        "datasets[].do_i2v: true has no effect: model family '{}', {}, is never shown what a clip begins with, as "
        "those for image-to-video are",
        recipe.family, recipe.variant);
}

}  // namespace

Prepared::Prepared(const Registry& all, const Config& c, World& world)
    : registry(all),
      config(c),
      processes(world.size()),
      processes_here(world.local_size()),
      micro_batches(c.train.gradient_accumulation * processes),
      device(c.device, c.train.deterministic),
      model(registry, c.model, c.plugin, keys_of_images(c)),
      loras(registry, c.model, model),
      experts(c.sample.prompts.empty() ? OtherExperts() : OtherExperts(registry, c.model, model, keys_of_images(c))),
      compute(compute_dtype(c.train.dtype)),
      objective(c.train, model.recipe()),
      adapter(std::make_shared<Adapter>(registry, c.network.type, c.network.network_kwargs)),
      selection(c.network, model.recipe(), static_cast<uint64_t>(c.train.seed), model.checkpoint().weights(),
                c.train.train_text_encoder, adapter),
      preserved(c),
      slider(c),
      text(device, model, encoder_dtype(device, compute), c.training_folder / "cache" / "text",
           memory_limit(c, device)),
      vae{device, model, encoder_dtype(device, compute), c.model.vae_tile},
      latents(vae, memory_limit(c, device),
              std::ranges::all_of(c.datasets, &DatasetConfig::cache_latents_to_disk)
                  ? c.training_folder / "cache" / "latents"
                  : std::filesystem::path()),
      images(model.recipe(), latents),
      seen_images(c.training_folder / "cache" / "images.seen", "images/1"),
      dataset(open_dataset(
          c.datasets, {c.trigger_word, c.train.batch_size, model.recipe().sound}, model.recipe().latents.size_step(),
          [this](const std::string& hash) { return latents.known(hash); }, model.recipe().image_keys(),
          {c.train.validation_split, validation_seed()}, nullptr, &seen_images)),
      masks(model.recipe().latents.downscale),
      world_(world) {
  if (const auto slow = slow_type(device.info(), compute)) log_warning("train.dtype: {}", *slow);
  limit = memory_limit(c, device);
  if (model.recipe().sound)
    sound.emplace(device, model, limit,
                  latents.on_disk() ? c.training_folder / "cache" / "sound" : std::filesystem::path());
  constexpr int64_t between_devices = 256 << 20;  // that NCCL takes for itself, later
  if (processes > 1 && !device.is_cpu() && c.memory.budget.empty() && c.memory_limit_mib == 0)
    limit = std::max<int64_t>(0, limit - between_devices);
  if (shares_base()) {
    KnownRates agreed = rates();
    agree_on_plan(world, limit, agreed.rates);
    rates_ = agreed;
  }
  device.limit_memory(limit);
  check_model(model, compute);
  check_first_frames(c, model.recipe());
  check_sound(c, model.recipe(), dataset);
  if (!c.sample.prompts.empty()) sampler = choose_sampler(registry, model.recipe(), c.sample);
  requests = requests_of(c, model.recipe(), experts.shares());
  check_guidance(c.train, model.recipe());
  check_masked_prior(c.train);
  if (selection.text_encoders() && std::ranges::any_of(requests, [](const auto& r) { return r.strength != 1; }))
    fail(Code::config,
         "sample.network_multiplier: with train.train_text_encoder samples are made at strength 1. Remove it, and "
         "sample with --lora FILE:STRENGTH when the run is done");
  settle_course();
  if (config.train.max_train_epochs > 0) warn_of_long_schedules(config.train, "");
  fit();
}

// All that follows from how many micro-batches a step has.
void Prepared::settle_course() {
  TrainSection& train = config.train;
  order.emplace(dataset, static_cast<uint64_t>(train.seed), micro_batches);
  if (train.max_train_epochs > 0) {
    const int64_t batches = train.max_train_epochs * order->batches_per_epoch();
    train.steps = (batches + micro_batches - 1) / micro_batches;
    check_phases(train);
  }
  // Captions that are encoded within the step need not be known.
  constexpr double gib = int64_t{1} << 30;
  const double limit = train.text_cache_limit_gib * gib, each = static_cast<double>(text.bytes_each());
  const bool live = selection.text_encoders();
  if (slider.any())
    captions.emplace(dataset, slider.all());
  else
    captions.emplace(dataset, *order, course(), preserved,
                     live ? 0 : static_cast<int64_t>(std::min(limit / each, 1e9)));
  if (!live && captions->varying() > 0 && !captions->complete()) {
    const auto variants = static_cast<int64_t>(limit / each / static_cast<double>(captions->varying()));
    fail(Code::resource,
         "datasets: captions that are drawn anew at each use make more than {} different ones in {} steps, of {:.1f} "
         "MiB each when they are encoded; train.text_cache_limit_gib is {}. {}, raise the limit, or train the text "
         "encoders (train.train_text_encoder), which encodes each caption when it is used",
         static_cast<int64_t>(limit / each), train.steps, each / (1 << 20), train.text_cache_limit_gib,
         variants > 0 ? fmt::format("Set datasets[].caption_variants: {} or less, for so many of each image", variants)
                      : "Leave the captions as they are");
  }
  if (!model.recipe().pictures.empty()) {
    std::set<std::string> shown;
    for (const Prompt& prompt : prompts()) shown.insert(prompt.identity());
    if (const double bytes = static_cast<double>(shown.size()) * each; bytes > limit)
      fail(Code::resource,
           "datasets: captions are encoded with the pictures beside them: {} of both take {:.1f} GiB; "
           "train.text_cache_limit_gib is {}. Raise the limit, or take fewer images, captions or augment_variants",
           shown.size(), bytes / gib, train.text_cache_limit_gib);
  }
  shapes.emplace(model.recipe(), dataset, *captions, text, live);
}

void Prepared::fit() {
  planner_.reset();  // it was made for other shapes
  text.require_memory(prompts());
  fit_memory();
  check_lora_names(plan->adapters->empty_modules(), model.spec(), config.save.format);
  if (!config.network.pretrained_lora_path.empty())
    warm_start.emplace(config.network.pretrained_lora_path, model.spec(), model.checkpoint().weights(),
                       *plan->adapters);
}

void Prepared::use_micro_batches(int64_t count) {
  micro_batches = count;
  const std::set<StepShape> before = shapes->all();
  settle_course();
  if (shapes->all() != before)
    fit();
  else if (count > 1)
    plan->accumulate();
}

bool Prepared::masked() const {
  const auto has_mask = [](const Sample& sample) { return sample.mask.has_value(); };
  return std::ranges::any_of(dataset.samples, has_mask) || std::ranges::any_of(dataset.validation, has_mask);
}

bool Prepared::keeps_masked() const { return config.train.inverted_mask_prior && masked(); }

bool Prepared::counts_by_place() const { return !slider.any() && (masked() || model.recipe().starts_clips()); }

RunCourse Prepared::course() const {
  return {.seed = static_cast<uint64_t>(config.train.seed),
          .batches_per_epoch = order->batches_per_epoch(),
          .micro_batches = micro_batches,
          .steps = config.train.steps};
}

uint64_t Prepared::validation_seed() const {
  const std::optional<double>& seed = config.train.validation_seed;
  return seed ? static_cast<uint64_t>(*seed) : static_cast<uint64_t>(config.train.seed);
}

StepShape Prepared::validation_shape(const Sample& sample) {
  return {sample.bucket,
          selection.text_encoders() ? text.most_lengths() : text.lengths(shown(sample, sample.caption, sample.cut()))};
}

bool Prepared::epochs_end(int64_t step, int64_t epochs) const {
  if (epochs < 1 || step < 1) return false;
  const int64_t batches = epochs * order->batches_per_epoch();
  return step * micro_batches / batches > (step - 1) * micro_batches / batches;
}

const KnownRates& Prepared::rates() {
  if (!rates_) rates_ = known_rates(device, compute, limit, model.products());
  return *rates_;
}

PlanOptions Prepared::plan_options(const MemoryChoice& choice) {
  const bool train_text = selection.text_encoders();
  return {.step = {.compute = compute,
                   .loss = config.train.loss,
                   .weighted = slider.any() || objective.weighted() || weighs_samples(config.train, dataset),
                   .by_place = counts_by_place(),
                   .activations = choice.activations(),
                   .rates = choice.recompute > 0 ? rates().rates : Rates{},
                   .max_loss = config.train.max_loss,
                   .text_encoders = train_text,
                   .preserves = preserved.any(),
                   .keeps_masked = keeps_masked(),
                   .streaming = streaming,
                   .slider = slider.any() ? std::optional(slider.config()) : std::nullopt,
                   .differential_guidance = config.train.target_distance()},
          .states = choice.states_at(),
          .micro_batches = std::max<int64_t>(1, micro_batches / processes),
          .encoder_sizes = train_text ? text.tokens().sizes() : Sizes{},
          .accumulate = micro_batches > 1,
          .processes = processes,
          .rank = world_.rank(),
          .shares_base = shares_base(),
          .norm_limit = config.network.scale_weight_norms};
}

void Prepared::compile(const MemoryChoice& choice) {
  const bool train_text = selection.text_encoders();
  streaming = choice.streamed > 0 ? memory_planner().streaming(choice.streamed) : Streaming{};
  const PlanOptions options = plan_options(choice);
  plan.emplace(device, model, registry, RunSettings(config.train).train(), selection, shapes->all(), options);
  for (const Phase& phase : config.train.phases)
    if (phase.until > 0) plan->also(RunSettings(config.train, phase.until).train());
  if (!dataset.validation.empty()) {
    std::set<StepShape> of_validation;
    for (const Sample& sample : dataset.validation) of_validation.insert(validation_shape(sample));
    validation =
        std::make_unique<ValidationSteps>(device, model, selection, of_validation, options.step, options.encoder_sizes);
    for (const PlannedGraph& planned : validation->graphs())
      plan->also(planned.plan->bytes, workspace_bytes(device, {planned}), constant_bytes(*planned.graph));
  }
  if (requests.empty()) return;
  const Sizes lengths = train_text ? text.most_lengths() : text.lengths(prompts_of(requests, model.recipe()));
  samples =
      std::make_unique<SampleSet>(device, model, selection, compute, sampler, requests, lengths, streaming, experts);
  const Denoiser::Memory sampling = samples->memory();
  plan->also(sampling.arena, sampling.workspace, sampling.constants);
  if (train_text) {
    live_text = std::make_unique<LiveText>(device, model, selection, compute, text, streaming);
    const Graph& graph = live_text->graph();
    plan->also(live_text->arena_bytes(), workspace_bytes(device, graph, live_text->plan()), constant_bytes(graph));
  }
  const MemoryReport& memory = plan->memory;
  const MemoryRoom room{.limit = limit,
                        .taken = memory.weights + memory.adapters + memory.small,
                        .arena = memory.activations,
                        .workspace = memory.workspace};
  samples->plan_decoding(vae, room);
  plan->also_decoding(samples->decoding());
}

MemoryPlanner& Prepared::memory_planner(const std::optional<KnownRates>& other) {
  if (other) {
    rates_ = other;
    planner_.reset();
  }
  if (!planner_) {
    PlanOptions options = plan_options({});
    options.step.streaming = {};
    DecodingOf decoding;
    if (samples) decoding = [this](const MemoryRoom& room) { return samples->decoding_in(vae, room); };
    planner_.emplace(*plan, model, selection, options, config, rates().rates,
                     host_memory_for(device, config, processes_here), std::move(decoding));
  }
  return *planner_;
}

void Prepared::fit_memory() {
  const std::string& stream = config.memory.stream;
  const bool all_here = stream == "auto" || stream == "0";
  if (shares_base() && !all_here)
    fail(Code::config,
         "memory.shard_base and memory.stream: {} are two ways to keep the weights elsewhere: on the devices of the "
         "other processes, or in host memory. Leave one of them out",
         stream);
  compile(MemoryWishes(config, 0).least_kept());
  const bool fits =
      plan->memory.total() <= limit && plan->memory.on_host() <= host_memory_for(device, config, processes_here);
  if (fits && all_here && !shares_base()) return;
  MemoryPlanner& planner = memory_planner();
  // The estimate looks at the step of the largest shape; what else the run has may take a little more.
  constexpr int attempts = 4;
  int64_t room = limit;
  for (int i = 0; i < attempts; ++i) {
    const std::optional<PlannedMemory> best = planner.best(room);
    if (!best) break;
    compile(best->choice);
    // Processes that keep different weights are planned for alike, so that all compute in one order.
    const int64_t own = plan->memory.total();
    const int64_t most = shares_base() ? std::ranges::max(gather_values(world_, own)) : own;
    if (most <= limit) return;
    room -= most - limit;
  }
  const std::string decoded = samples ? samples->decoding_text() : "";
  const std::string decoding =
      !decoded.empty() ? fmt::format(
                             "\nDecoding samples of {} takes {} of the weights and {} of activations; a smaller "
                             "model.vae_tile takes less",
                             decoded, size_text(samples->decoding().weights), size_text(samples->decoding().arena))
                       : "";
  fail(Code::resource, "{}{}", does_not_fit(planner, config, model, limit), decoding);
}

Prompt Prepared::shown(const Sample& sample, const std::string& caption, const ImageCut& cut) const {
  return {model.recipe(), caption, sample.images, cut};
}

std::vector<Prompt> Prepared::prompts() const {
  std::vector<Prompt> all;
  if (selection.text_encoders()) {  // others change with every step
    all.assign(captions->preserved().begin(), captions->preserved().end());
    return all;
  }
  all = prompts_of(requests, model.recipe());
  if (model.recipe().pictures.empty()) {
    all.insert(all.end(), captions->preserved().begin(), captions->preserved().end());
    all.insert(all.end(), captions->all().begin(), captions->all().end());
  } else {
    for (size_t i = 0; i < dataset.samples.size(); ++i)
      for (const ImageCut& cut : dataset.samples[i].cuts())
        for (const std::string* caption : captions->of(i)) all.push_back(shown(dataset.samples[i], *caption, cut));
  }
  for (const Sample& sample : dataset.validation) all.push_back(shown(sample, sample.caption, sample.cut()));
  return all;
}

std::vector<ImageCut> Prepared::cuts() const {
  std::vector<ImageCut> all = images.to_encode(dataset);
  std::ranges::move(cuts_of(requests, images), std::back_inserter(all));
  return all;
}

}  // namespace lh
