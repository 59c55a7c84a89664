#include "cli/expert_runs.h"

#include <algorithm>

#include "compile/other_experts.h"
#include "config/dtype.h"
#include "core/error.h"
#include "data/further_images.h"
#include "data/sample_file.h"
#include "encode/try_model.h"
#include "plugin/published.h"
#include "train/state_files.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// A file that is one expert's says nothing to the others.
void refuse_files_of_one(const Experts& experts, const Config& job) {
  const fs::path always = job.model.lora_path.empty() ? "" : job.model.lora_path.front();
  for (const auto& [key, path] : {std::pair<const char*, const fs::path&>{"model.lora_path", always},
                                  {"model.assistant_lora_path", job.model.assistant_lora_path},
                                  {"model.inference_lora_path", job.model.inference_lora_path},
                                  {"network.pretrained_lora_path", job.network.pretrained_lora_path}})
    if (!path.empty())
      fail(
          Code::config,
          "{}: {} is of one expert, and model.{}: {} trains {} of them. Train each in a run of its own, with model.{}: "
          "{}",
          key, path.string(), experts.setting, experts.together, experts.each.size(), experts.setting,
          experts.each.front().word);
}

bool holds_states(const Config& run) {
  std::error_code none;
  const fs::path states = run.output_dir() / "state";
  return fs::is_directory(states, none) && !fs::is_empty(states, none);
}

}  // namespace

fs::path final_lora(const Config& run) { return run.output_dir() / (run.name + ".safetensors"); }

std::vector<Config> runs_of(const Registry& registry, const Config& job) {
  const std::vector<PluginKeys> plugins = registry.model_keys();
  const PluginKeys* const own = of_experts_together(plugins, job.model, registry.model_id(job.plugin));
  if (own == nullptr) return {job};
  require_model_path(registry, job.model.name_or_path);
  const Experts& experts = own->experts;
  refuse_files_of_one(experts, job);
  std::vector<Config> runs;
  for (const Expert& expert : experts.each) {
    Config run = job;
    run.name += expert.suffix();
    run.model = experts.alone(expert, job.model);
    run.model.given.erase(expert.lora_key());
    for (size_t earlier = 0; earlier < runs.size(); ++earlier)
      run.model.given[experts.each[earlier].lora_key()] = {.text = final_lora(runs[earlier]).string()};
    runs.push_back(std::move(run));
  }
  return runs;
}

void check_runs(const Registry& registry, const std::vector<Config>& runs, bool resume) {
  for (const Config& run : runs) {
    if (runs.size() > 1 && !resume && holds_states(run))
      fail(Code::config, "{}: holds an earlier run. Continue it with --resume, or give the new run another `name`",
           run.output_dir().string());
    try_model(registry, run.model, run.plugin, compute_dtype(run.train.dtype), keys_of_images(run));
  }
  const Config& first = runs.front();
  if (runs.size() < 2) return;
  const Model model(registry, first.model, first.plugin, keys_of_images(first));
  const OtherExperts others(registry, first.model, model, keys_of_images(first));
}

bool is_finished(const Config& run) {
  if (run.train.max_train_epochs > 0 || !holds_states(run)) return false;  // its steps are not known here
  const std::vector<Generation> states = generations(run.output_dir() / "state");
  std::error_code none;
  if (states.empty() || states.front().step != run.train.steps || !fs::exists(final_lora(run), none)) return false;
  const SampleConfig& sample = run.sample;
  if (sample.prompts.empty() || (sample.sample_every == 0 && sample.sample_every_n_epochs == 0)) return true;
  // Images that one call makes end in different shares of the steps: all have to be there.
  for (size_t i = 0; i < sample.prompts.size(); ++i) {
    const auto there = [&](std::string_view extension) {
      return fs::exists(run.output_dir() / "samples" / fmt::format("{:09}_{}{}", run.train.steps, i, extension), none);
    };
    if (std::ranges::none_of(sample_extensions, there)) return false;
  }
  return true;
}

}  // namespace lh
