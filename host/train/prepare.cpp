#include "train/prepare.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "data/caption.h"

namespace lh {

DType compute_dtype(const std::string& name) {
  if (name == "bf16" || name == "bfloat16") return DType::bf16;
  if (name == "fp16" || name == "float16") return DType::f16;
  if (name == "fp32" || name == "float32" || name == "float") return DType::f32;
  fail(Code::config, "dtype '{}' is not bf16, fp16 or fp32", name);
}

namespace {

// Memory that a plan may use.
int64_t memory_limit(const Config& config) {
  if (config.memory_limit_mib > 0) return config.memory_limit_mib << 20;
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
}

// Encoders run in float32 on the CPU, whatever training uses: they run once.
constexpr DType encoder_dtype = DType::f32;

}  // namespace

Prepared::Prepared(const Registry& registry, const Config& c)
    : config(c),
      device(c.device),
      model(registry, c.model, c.plugin),
      optimizer(registry, c.train.optimizer, c.train.optimizer_params),
      compute(compute_dtype(c.train.dtype)),
      selection(c.network, model.recipe(), static_cast<uint64_t>(c.train.seed)),
      text(device, model, encoder_dtype, c.training_folder / "cache" / "text"),
      latents(device, model, encoder_dtype,
              std::ranges::all_of(c.datasets, &DatasetConfig::cache_latents_to_disk)
                  ? c.training_folder / "cache" / "latents"
                  : std::filesystem::path()),
      dataset(open_dataset(c.datasets, c.trigger_word, model.recipe().latents.pixel_step(),
                           [this](const std::string& hash) { return latents.known(hash); })) {
  if (!c.sample.prompts.empty()) find_sampler(registry, model.recipe(), c.sample.sampler);
  for (size_t i = 0; i < c.sample.prompts.size(); ++i) {
    const auto seed = static_cast<uint64_t>(c.sample.seed) + (c.sample.walk_seed ? i : 0);
    const std::string prompt = replace_trigger(c.sample.prompts[i], c.trigger_word);
    requests.push_back(complete_request(c.sample, model.recipe(), prompt, seed));
  }
  fit_memory();
}

void Prepared::compile(double recompute) {
  const Recipe& recipe = model.recipe();
  const int64_t text_length = text.length();
  const bool outside = config.train.gradient_accumulation == 1;
  std::set<Bucket> buckets;
  for (const Sample& sample : dataset.samples) buckets.insert(sample.bucket);
  steps.clear();
  memory = {};
  for (const Bucket& bucket : buckets) {
    const Sizes sizes{{"batch", config.train.batch_size},
                      {"height", bucket.height / recipe.latents.downscale},
                      {"width", bucket.width / recipe.latents.downscale},
                      {"text_length", text_length}};
    const StepOptions options{
        .compute = compute, .loss = config.train.loss, .recompute = recompute, .gradients_outside = outside};
    steps[bucket] = std::make_unique<TrainStep>(build_train_graph(model, sizes, selection, options), outside);
    memory.activations = std::max(memory.activations, steps[bucket]->arena_bytes());
  }
  const TrainGraph& first = steps.begin()->second->train_graph();
  if (first.modules.empty())
    fail(Code::config,
         "network: no module is left to train. Check network_kwargs.only_if_contains and ignore_if_contains; this "
         "model's "
         "targets are {}",
         fmt::join(recipe.lora_targets, " and "));
  adapters = std::make_unique<Adapters>(first.graph, first.modules, optimizer.states());
  if (!requests.empty()) {
    denoiser = std::make_unique<Denoiser>(device, model, selection, compute, config.sample.width, config.sample.height,
                                          text_length);
    memory.activations = std::max(memory.activations, denoiser->arena_bytes());
  }
  memory.weights = weight_bytes(first.graph, weight_names(first.graph, model.checkpoint()));
  memory.adapters = adapters->bytes();
}

void Prepared::fit_memory() {
  const std::string& wish = config.train.gradient_checkpointing;
  const int64_t limit = memory_limit(config);
  const std::vector<double> shares = wish == "true"    ? std::vector<double>{1}
                                     : wish == "false" ? std::vector<double>{0}
                                                       : std::vector<double>{0, 0.25, 0.5, 0.75, 1};
  std::string tried;
  for (const double share : shares) {
    compile(share);
    if (memory.total() <= limit) return;
    tried += fmt::format(
        "\n  recomputing {:.0f}% of the blocks: {} MiB (weights {}, LoRA and optimizer {}, activations {})",
        100 * share, memory.total() >> 20, memory.weights >> 20, memory.adapters >> 20, memory.activations >> 20);
  }
  fail(Code::resource,
       "the run does not fit: {} MiB of memory may be used.{}\nLower datasets.resolution, train.batch_size or "
       "network.linear{}",
       limit >> 20, tried, wish == "false" ? ", or set train.gradient_checkpointing: auto" : "");
}

std::string Prepared::report() const {
  const TrainStep& largest =
      *std::ranges::max_element(steps, {}, [](const auto& s) { return s.second->arena_bytes(); })->second;
  const TrainGraph& graph = largest.train_graph();
  std::string text_report = fmt::format("model      {} {} from {}\n", model.recipe().family, model.recipe().variant,
                                        config.model.name_or_path.string());
  text_report += fmt::format("dataset    {} samples, {} skipped\n", dataset.samples.size(), dataset.skipped);
  std::map<Bucket, int64_t> counts;
  std::set<std::string> captions;
  for (const Sample& s : dataset.samples) {
    counts[s.bucket] += s.repeats;
    captions.insert(s.caption);
  }
  for (const auto& [bucket, count] : counts)
    text_report += fmt::format("  bucket   {} x {}: {} per epoch\n", bucket.width, bucket.height, count);
  text_report += fmt::format("  captions {} different, first: \"{}\"\n", captions.size(), *captions.begin());
  text_report += fmt::format("LoRA       {} modules, rank {}, alpha {}, {} parameters\n", graph.modules.size(),
                             config.network.linear, graph.modules.front().alpha, adapters->parameter_count());
  for (const AdaptedModule& m : graph.modules) text_report += fmt::format("  {}\n", m.name);
  text_report += fmt::format(
      "memory     {:.1f} MiB: weights {:.1f}, LoRA with gradients and optimizer {:.1f}, activations {:.1f} ({} of {} "
      "blocks "
      "recomputed)\n",
      static_cast<double>(memory.total()) / 1048576, static_cast<double>(memory.weights) / 1048576,
      static_cast<double>(memory.adapters) / 1048576, static_cast<double>(memory.activations) / 1048576,
      graph.recomputed_scopes, graph.checkpoint_scopes);
  return text_report;
}

}  // namespace lh
