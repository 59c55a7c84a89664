#include "train/metadata.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lh {
namespace {

// {"<repeats>_<folder>": {"<caption>": count}}: where model managers look for trigger words.
std::string tag_frequency(const Dataset& dataset) {
  nlohmann::json folders = nlohmann::json::object();
  for (const Sample& sample : dataset.samples) {
    const std::string folder = fmt::format("{}_{}", sample.repeats, sample.image.parent_path().filename().string());
    nlohmann::json& count = folders[folder][sample.caption];
    count = count.is_null() ? 1 : count.get<int64_t>() + 1;
  }
  return folders.dump();
}

}  // namespace

LoraMetadata lora_metadata(const Prepared& p, int64_t step) {
  const Config& config = p.config;
  LoraMetadata metadata{p.model.recipe().metadata};
  auto& entries = metadata.entries;
  const int64_t side = config.datasets.front().resolution.back();
  entries["lora_host.family"] = p.model.recipe().family;
  entries["lora_host.variant"] = p.model.recipe().variant;
  entries["ss_output_name"] = config.name;
  entries["ss_steps"] = std::to_string(step);
  entries["ss_max_train_steps"] = std::to_string(config.train.steps);
  entries["ss_resolution"] = fmt::format("({}, {})", side, side);
  entries["ss_seed"] = std::to_string(config.train.seed);
  entries["ss_learning_rate"] = fmt::format("{}", config.train.lr);
  if (config.train.train_text_encoder)
    entries["ss_text_encoder_lr"] = fmt::format("{}", config.train.text_encoder_lr.value_or(config.train.lr));
  entries["ss_lr_scheduler"] = config.train.lr_scheduler;
  entries["ss_optimizer"] = config.train.optimizer;
  entries["ss_num_train_images"] = std::to_string(p.dataset.samples.size());
  entries["ss_batch_size_per_device"] = std::to_string(config.train.batch_size);
  entries["ss_gradient_accumulation_steps"] = std::to_string(config.train.gradient_accumulation);
  entries["ss_mixed_precision"] = dtype_name(p.compute);
  entries["ss_tag_frequency"] = tag_frequency(p.dataset);
  entries["modelspec.title"] = config.name;
  entries["modelspec.resolution"] = fmt::format("{}x{}", side, side);
  if (!config.trigger_word.empty()) entries["modelspec.trigger_phrase"] = config.trigger_word;
  return metadata;
}

}  // namespace lh
