// kohya's metadata keys, as far as they are known here.
#include "train/metadata.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "diffusion/training_guidance.h"
#include "io/foreign_lora.h"

namespace lh {
namespace {

// {"<repeats>_<folder>": {"<caption>": count}}: where model managers look for trigger words. A folder may be named so.
std::string tag_frequency(const Dataset& dataset) {
  nlohmann::json folders = nlohmann::json::object();
  for (const Sample& sample : dataset.samples) {
    const std::string repeats = fmt::format("{}_", sample.repeats);
    std::string folder = sample.image.path.parent_path().filename().string();
    if (!folder.starts_with(repeats)) folder.insert(0, repeats);
    nlohmann::json& count = folders[folder][sample.caption];
    count = count.is_null() ? 1 : count.get<int64_t>() + 1;
  }
  // A folder's name is any bytes; in the metadata it is text.
  return folders.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// [rank, alpha] of each module, that of most of them under "": what a plugin is told of a layer again when its file is
// merged.
std::string layers_text(const Adapters& adapters) {
  using Numbers = std::pair<int64_t, double>;
  std::map<Numbers, int64_t> counts;
  const auto numbers = [](const AdaptedModule& module) { return Numbers(module.layer.rank, module.layer.alpha); };
  for (const AdaptedModule& module : adapters.adapted()) ++counts[numbers(module)];
  const Numbers most = std::ranges::max_element(counts, {}, [](const auto& item) { return item.second; })->first;
  nlohmann::json layers{{"", {most.first, most.second}}};
  for (const AdaptedModule& module : adapters.adapted())
    if (numbers(module) != most) layers[module.name] = {module.layer.rank, module.layer.alpha};
  return layers.dump();
}

// What was trained, in the words of LyCORIS for the adapters that it has; a plain LoRA is what files are made of
// anyway.
void add_network(const Prepared& p, std::map<std::string, std::string>& entries) {
  const std::string id = p.adapter->id();
  if (id == "lora" || id == "locon") return;
  entries[network_entry] = id;
  entries[network_options_entry] = p.adapter->options_yaml();
  entries[network_layers_entry] = layers_text(*p.plan->adapters);
  if (id != "dora" && id != "loha" && id != "lokr" && id != "full") return;
  nlohmann::json args{{"algo", id == "dora" ? "lora" : id}};
  if (id == "dora") args["dora_wd"] = "True";
  if (p.config.network.conv > 0) args["conv_dim"] = std::to_string(p.config.network.conv);
  entries["ss_network_module"] = lycoris_module;
  entries["ss_network_args"] = args.dump();
}

// One for all, or by dataset.
void add_batch_sizes(const Prepared& p, std::map<std::string, std::string>& entries) {
  if (const std::set<int64_t> sizes = p.dataset.batch_sizes(); sizes.size() == 1) {
    entries["ss_batch_size_per_device"] = std::to_string(*sizes.begin());
    return;
  }
  nlohmann::json datasets = nlohmann::json::array();
  for (const DatasetConfig& dataset : p.config.datasets)
    for (size_t i = 0; i < dataset.resolution.size(); ++i)
      datasets.push_back({{"batch_size_per_device", dataset.batch_size_at(i, p.config.train.batch_size)},
                          {"resolution", {dataset.resolution[i], dataset.resolution[i]}}});
  entries["ss_datasets"] = datasets.dump();
}

// The keys by which kohya's files say what was trained on; those of settings that were not used are left out.
void add_objective(const Prepared& p, std::map<std::string, std::string>& entries) {
  const TrainSection& train = p.config.train;
  const auto number = [&](const char* key, const std::optional<double>& value) {
    if (value) entries[key] = fmt::format("{}", *value);
  };
  entries["ss_loss_type"] = train.loss == "mse" ? "l2" : train.loss;
  if (train.noise_offset > 0) number("ss_noise_offset", train.noise_offset);
  if (train.multires_noise_iterations > 0) {
    entries["ss_multires_noise_iterations"] = std::to_string(train.multires_noise_iterations);
    number("ss_multires_noise_discount", train.multires_noise_discount);
  }
  if (train.ip_noise_gamma > 0) number("ss_ip_noise_gamma", train.ip_noise_gamma);
  if (train.max_train_epochs > 0) entries["ss_num_epochs"] = std::to_string(train.max_train_epochs);
  if (train.min_snr_gamma.value_or(0) > 0) number("ss_min_snr_gamma", train.min_snr_gamma);
  if (train.debiased_estimation_loss) entries["ss_debiased_estimation"] = "True";
  const Recipe& recipe = p.model.recipe();
  if (recipe.objective != Objective::flow) {
    if (recipe.noise_schedule.zero_terminal_snr) entries["ss_zero_terminal_snr"] = "True";
    entries["modelspec.prediction_type"] = recipe.objective == Objective::epsilon ? "epsilon" : "v";
    return;
  }
  entries["ss_timestep_sampling"] = p.objective.law().name() == "linear" ? "uniform" : p.objective.law().name();
  entries["ss_discrete_flow_shift"] = fmt::format("{}", p.objective.law().shift());
  entries["ss_model_prediction_type"] = "raw";
  const std::string& scheme = train.weighting_scheme.empty() ? recipe.timestep.weighting : train.weighting_scheme;
  if (scheme != "none") entries["ss_weighting_scheme"] = scheme;
  number("ss_sigmoid_scale", train.sigmoid_scale);
  number("ss_logit_mean", train.logit_mean);
  number("ss_logit_std", train.logit_std);
  number("ss_mode_scale", train.mode_scale);
  if (const double guidance = training_guidance(train, recipe); recipe.guided() && guidance >= 0)
    number("ss_guidance_scale", guidance);
}

}  // namespace

LoraMetadata lora_metadata(const Prepared& p, const TrainSection& now, int64_t step) {
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
  entries["ss_learning_rate"] = fmt::format("{}", now.learning_rate());
  if (config.train.train_text_encoder)
    entries["ss_text_encoder_lr"] = now.text_encoder_lr.empty()
                                        ? fmt::format("{}", now.learning_rate())
                                        : fmt::format("{}", fmt::join(now.text_encoder_lr, ","));
  entries["ss_lr_scheduler"] = now.lr_scheduler;
  entries["ss_optimizer"] = now.optimizer;
  entries["ss_num_train_images"] = std::to_string(p.dataset.samples.size());
  add_batch_sizes(p, entries);
  entries["ss_gradient_accumulation_steps"] = std::to_string(p.micro_batches);
  entries["ss_mixed_precision"] = dtype_name(p.compute);
  if (p.plan->ema) entries["lora_host.ema"] = p.plan->ema->text();
  add_network(p, entries);
  add_objective(p, entries);
  entries["ss_tag_frequency"] = tag_frequency(p.dataset);
  entries["modelspec.title"] = config.name;
  entries["modelspec.resolution"] = fmt::format("{}x{}", side, side);
  if (!config.trigger_word.empty()) entries["modelspec.trigger_phrase"] = config.trigger_word;
  return metadata;
}

}  // namespace lh
