// The rules were read from ai-toolkit's sources of 2026-08 (toolkit/config_modules.py, optimizer.py, scheduler.py,
// lora_special.py, samplers/custom_flowmatch_sampler.py, jobs/process/BaseSDTrainProcess.py).
#include "config/ai_toolkit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "config/dtype.h"
#include "core/lower.h"

namespace lh::ai_toolkit {
namespace {

using yaml::Kind;
using yaml::Node;

const Node* find(const Node& process, std::string_view section, std::string_view key) {
  const Node* in = process.find(section);
  return in == nullptr || in->kind != Kind::map ? nullptr : in->find(key);
}
bool given(const Node& process, std::string_view section, std::string_view key) {
  const Node* value = find(process, section, key);
  return value != nullptr && value->kind != Kind::null;
}

void replace_in(Node& node, const std::string& name, std::vector<yaml::Problem>& problems) {
  for (size_t at = 0; (at = node.text.find("[name]", at)) != node.text.npos; at += name.size())
    node.text.replace(at, 6, name);
  for (size_t at = 0; (at = node.text.find("${", at)) != node.text.npos;) {
    const size_t end = node.text.find('}', at);
    if (end == node.text.npos || end == at + 2) break;
    const std::string word = node.text.substr(at + 2, end - at - 2);
    const char* value = std::getenv(word.c_str());
    if (value == nullptr) {
      problems.push_back(
          {node.place, fmt::format("${{{}}}: the environment has no {}. Set it, or write the value", word, word)});
      node.text = word;
      return;
    }
    node.text.replace(at, end + 1 - at, value);
    at += std::string_view(value).size();
  }
}

// Its optimizers are made with other options than their own defaults.
void settle_optimizer(TrainSection& train, const Node& process) {
  const std::string id = lower(train.optimizer);
  const auto add = [&](const std::string& option, const std::string& value) {
    train.optimizer_params.try_emplace(
        option, GivenOption{.value = {.kind = Kind::scalar, .text = value}, .source = "ai-toolkit"});
  };
  if (id == "adam" || id == "adamw" || id == "adam8bit" || id == "adamw8bit" || id.starts_with("prodigy") ||
      id.starts_with("dadapt"))
    add("eps", "1e-6");
  if (id == "adafactor")
    for (const char* option : {"relative_step", "scale_parameter", "warmup_init"}) add(option, "false");
  if (train.lr_scheduler == "constant_with_warmup" && !train.lr_scheduler_params.contains("warmup_steps") &&
      !find(process, "train", "lr_scheduler_params"))
    train.lr_scheduler_params["warmup_steps"] = 1000;
}

// Which noise levels are trained.
void settle_timesteps(Config& config) {
  TrainSection& train = config.train;
  int64_t &first = train.min_denoising_steps, &last = train.max_denoising_steps;
  if (train.noise_scheduler == "ddpm") {
    if (train.timestep_type != "linear")
      config.notes.push_back(fmt::format(
          "train.timestep_type: {} is for noise_scheduler: flowmatch; with ddpm all timesteps are as likely, here as "
          "there",
          train.timestep_type));
    train.timestep_type = "linear";
    if (first != last) {  // it draws from first + 1 up to below last - 1
      first = std::min<int64_t>(first + 1, 999);
      last = std::max(first, last - 2);
    }
    return;
  }
  if (first < last) --last;  // it never draws the last one
  if (train.timestep_type == "shift" || train.timestep_type == "flux_shift") train.timestep_type = "linear_shift";
  const bool plain = train.timestep_type == "sigmoid" || train.timestep_type == "linear";
  if (plain && !train.timestep_shift) train.timestep_shift = 1;
}

// Its key for regularization images is read from the one for all.
void settle_favoured_levels(Config& config) {
  TrainSection& train = config.train;
  if (train.content_or_style_reg != "balanced" && train.content_or_style_reg != train.content_or_style)
    config.notes.push_back(
        fmt::format("train.content_or_style_reg: {} is not used: in ai-toolkit regularization images have the noise "
                    "levels of content_or_style ({}), and so do they here",
                    train.content_or_style_reg, train.content_or_style));
  train.content_or_style_reg = train.content_or_style;
}

void settle_network(Config& config, const Node& process) {
  NetworkConfig& network = config.network;
  const bool low_rank = network.type == "lora" || network.type == "locon" || network.type == "dora";
  const auto option = [&](const std::string& name) { return network.network_kwargs.find(name); };
  if (network.type == "lokr" && !given(process, "network", "lokr_full_rank") &&
      option("full_matrix") == network.network_kwargs.end())
    network.network_kwargs["full_matrix"] = {.value = {.kind = Kind::scalar, .text = "true"}, .source = "ai-toolkit"};
  if (config.train.noise_scheduler == "flowmatch") {
    // Models of flow matching are transformers there, which get alpha = rank and the names of PEFT.
    const auto alpha = [&](std::optional<double>& value, int64_t rank, const char* key) {
      if (value && *value != static_cast<double>(rank) && rank > 0)
        config.notes.push_back(fmt::format(
            "network.{}: {} is not used: ai-toolkit trains models of flow matching with alpha = rank ({}), and so does "
            "this run",
            key, *value, rank));
      value.reset();
    };
    alpha(network.linear_alpha, network.linear, "linear_alpha");
    alpha(network.conv_alpha, network.conv, "conv_alpha");
    if (network.conv > 0)
      config.notes.push_back(
          fmt::format("network.conv: {} is not used: models of flow matching have no convolutions among their layers",
                      network.conv));
    network.conv = 0;
    if (low_rank) config.save.format = "diffusers";
  } else {
    if (!network.linear_alpha) network.linear_alpha = 1;
    if (!given(process, "network", "target_modules"))
      network.target_modules.clear();  // of transformer_only, a UNet has none
    config.save.format = "kohya";
  }
}

bool is_slider(const Node& process) {
  const Node* type = process.find("type");
  return type != nullptr && type->text == slider_type;
}

// A slider's loss is its own there; other processes do not look at its section.
void settle_slider(Config& config, const Node& process) {
  TrainSection& train = config.train;
  if (!is_slider(process)) {
    if (config.slider.on())
      config.notes.push_back(
          fmt::format("slider: is not used: in ai-toolkit it is for processes of the type {}", slider_type));
    config.slider = {};
    return;
  }
  const auto leave_out = [&](bool on, const char* key) {
    if (on)
      config.notes.push_back(fmt::format("train.{} is not used: a slider of ai-toolkit has a loss of its own", key));
  };
  leave_out(train.diff_output_preservation, "diff_output_preservation");
  leave_out(train.blank_prompt_preservation, "blank_prompt_preservation");
  leave_out(train.inverted_mask_prior, "inverted_mask_prior");
  leave_out(train.do_differential_guidance, "do_differential_guidance");
  leave_out(train.loss != "mse", "loss_type");
  leave_out(train.max_loss > 0, "max_loss");
  leave_out(train.cfg_scale != 1, "cfg_scale");
  leave_out(train.train_text_encoder, "train_text_encoder");
  train.diff_output_preservation = train.blank_prompt_preservation = train.inverted_mask_prior = false;
  train.do_differential_guidance = train.train_text_encoder = false;
  train.loss = "mse";
  train.max_loss = 0;
  train.cfg_scale = 1;
}

// There the experts of a model take turns, and steps are counted over all; here each has a run of its own.
void settle_experts(Config& config, const std::vector<PluginKeys>* plugins) {
  if (plugins == nullptr) return;
  const PluginKeys* const own = of_experts_together(*plugins, config.model, config.plugin);
  if (own == nullptr) return;
  const auto count = static_cast<int64_t>(own->experts.each.size());
  const auto of_each = [count](int64_t steps) { return (steps + count - 1) / count; };
  const int64_t all = config.train.steps;
  for (int64_t* steps :
       {&config.train.steps, &config.save.save_every, &config.sample.sample_every, &config.sample.sample_start_step})
    *steps = of_each(*steps);
  if (const auto warmup = config.train.lr_scheduler_params.find("warmup_steps");
      warmup != config.train.lr_scheduler_params.end())
    warmup->second = static_cast<double>(of_each(static_cast<int64_t>(warmup->second)));
  config.notes.push_back(fmt::format(
      "train.steps: the {} of ai-toolkit are of {} experts in turns; here each is trained for {}, one after another, "
      "which is the same training: one's adapters, gradients and optimizer are nothing to the other. save_every, "
      "sample_every, sample_start_step and warmup_steps are divided likewise",
      all, count, config.train.steps));
}

}  // namespace

void replace_marks(Node& document, const std::string& name, std::vector<yaml::Problem>& problems) {
  replace_in(document, name, problems);
  for (Node& item : document.items) replace_marks(item, name, problems);
  for (auto& [key, value] : document.entries) {
    if (key.text == "num_warmup_steps") key.text = "warmup_steps";  // of lr_scheduler_params
    replace_marks(value, name, problems);
  }
}

Config defaults() {
  Config config;
  config.network.linear = 4;
  TrainSection& train = config.train;
  train.lr = 1e-6;
  train.dtype = "fp32";
  train.gradient_checkpointing = "true";
  train.noise_scheduler = "ddpm";
  train.timestep_type = "sigmoid";
  SampleConfig& sample = config.sample;
  sample.sample_every = 100;
  sample.seed = 0;
  sample.guidance_scale = 7;
  sample.sample_steps = 20;
  sample.sample_at_start = true;
  config.save.save_every = 1000;
  config.save.max_step_saves_to_keep = 5;
  return config;
}

DatasetConfig dataset_defaults() {
  DatasetConfig dataset;
  dataset.recursive = true;
  dataset.missing_captions = "empty";
  dataset.cache_latents_to_disk = false;
  return dataset;
}

void check(const Node& process, std::vector<yaml::Problem>& problems) {
  const auto wrong = [&](const Node& at, std::string text) { problems.push_back({at.place, std::move(text)}); };
  const Node* network = process.find("network");
  if ((network == nullptr || network->kind == Kind::null) && process.find("adapter") == nullptr)
    wrong(
        process,
        "network: missing. Without it ai-toolkit trains all of the model's weights, and saves a checkpoint; this "
        "program trains adapters. For a LoRA add network: {type: lora, linear: 16, linear_alpha: 16}; network: {type: "
        "full} trains all weights of the adapted layers, and saves what changed");
  const auto has_prompt = [&](const char* key) {
    const Node* prompt = find(process, "slider", key);
    return prompt != nullptr && !prompt->text.empty();
  };
  if (is_slider(process) && !has_prompt("positive_prompt") && !has_prompt("negative_prompt"))
    wrong(*process.find("type"),
          "type: concept_slider trains the way between two prompts. Set slider.positive_prompt and "
          "slider.negative_prompt");
  if (const Node* steps = find(process, "train", "gradient_accumulation_steps"); steps && steps->text != "1")
    wrong(*steps,
          "train.gradient_accumulation_steps: there it makes a step of one batch, and the weights change at every "
          "N-th. Use gradient_accumulation: N, and divide steps, save_every and sample_every by N");
  if (const Node* type = find(process, "train", "timestep_type"); type && type->text == "next_sample")
    wrong(*type,
          "train.timestep_type: next_sample trains on steps of the model's own sampling, which this program does not "
          "make while training. Use shift, whose noise levels are those of sampling, on the pictures themselves");
  if (const Node* schedule = find(process, "train", "lr_scheduler"); schedule && schedule->text == "linear")
    wrong(*schedule,
          "train.lr_scheduler: linear rises there from a third of lr to lr over the whole run, which is no schedule "
          "here. Use constant_with_warmup with lr_scheduler_params: {warmup_steps: N}");
}

void settle(Config& config, const Node& process, const std::vector<PluginKeys>* plugins,
            const std::function<std::optional<double>(const std::string&)>& usual_rate) {
  for (DatasetConfig& dataset : config.datasets) {
    if (dataset.shuffle_tokens == "true") dataset.shuffle_tokens = "all";
    if (dataset.random_scale && (dataset.buckets || !dataset.random_crop)) {
      dataset.random_scale = false;
      config.notes.push_back(
          "datasets[].random_scale: true is not used: ai-toolkit looks at it with buckets: false and random_crop: true "
          "alone");
    }
    if (const std::string end = lower(dataset.folder_path.extension().string()); end == ".json" || end == ".jsonl") {
      dataset.metadata_file = dataset.folder_path;
      dataset.folder_path = dataset.metadata_file.parent_path();
    }
  }
  settle_timesteps(config);
  settle_favoured_levels(config);
  settle_network(config, process);
  settle_slider(config, process);
  if (config.train.do_differential_guidance)
    config.notes.push_back(
        "train.do_differential_guidance: true counts here; ai-toolkit looks at it beside do_guidance_loss alone");
  settle_optimizer(config.train, process);
  settle_experts(config, plugins);
  TrainSection& train = config.train;
  // There it is those whose name begins with prodigy or dadapt.
  const std::optional<double> usual = usual_rate ? usual_rate(train.optimizer) : std::nullopt;
  if (usual && train.learning_rate() < *usual / 10) {
    config.notes.push_back(
        fmt::format("train.lr: {} is {} for {}, as in ai-toolkit, whose rule for this optimizer is "
                    "that rates below {} are {}",
                    train.learning_rate(), *usual, train.optimizer, *usual / 10, *usual));
    train.lr = usual;
  }
  const std::string& kept = config.model.dtype;
  if (kept != "auto" && !quantised_dtype(kept)) config.model.dtype = "auto";  // there it always is train.dtype
  if (config.sample.neg == "false") config.sample.neg.clear();                // its way to say nothing
  config.notes.push_back(
      "what the file does not say is as ai-toolkit has it, not as this program has it (docs/from-ai-toolkit.md)");
}

}  // namespace lh::ai_toolkit
