// lora-host train: trains a LoRA, or with --dry-run checks everything and prints the plan.
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/expert_runs.h"
#include "cli/launcher.h"
#include "cli/preflight.h"
#include "cli/ranks.h"
#include "core/log.h"
#include "core/signals.h"
#include "data/further_images.h"
#include "encode/try_model.h"
#include "plugin/registry.h"
#include "train/fact_changes.h"
#include "train/facts.h"
#include "train/trainer.h"
#include "world/world.h"

namespace lh {
namespace {

// A page that fits on a screen, or with --verbose all of it.
std::string plan_text(const Options& options, Prepared& prepared) {
  if (options.verbose) return fmt::format("{}\n{}", to_yaml(options.config), prepared.report(true));
  return prepared.report(false) + "Everything is in order. The whole configuration and the modules: --verbose\n";
}

// The configuration as it is now, in place of the one that the run was last started with; what is another is said.
void keep_configuration(const Options& options) {
  constexpr int64_t most_bytes = 16 << 20;
  const std::filesystem::path file = options.config.output_dir() / "config.yaml";
  const std::string now = to_yaml(options.config);
  std::error_code none;
  if (!options.resume.empty() && std::filesystem::exists(file, none))
    if (const std::string changes = changed_settings(read_text(file, most_bytes), now); !changes.empty())
      log_info("settings since the run was last started: {}", changes);
  publish_text(file, now);
}

// Hours of training are at stake where nothing of them is kept on the way.
void note_late_save(const Config& config) {
  const SaveConfig& save = config.save;
  if (save.save_every_n_epochs > 0 || (save.save_every > 0 && save.save_every < config.train.steps)) return;
  log_info(
      "nothing is saved before the last step, {}: a run that is killed begins anew. save.save_every (--save-every) "
      "keeps where it stands; Ctrl-C saves",
      config.train.steps);
}

struct Ended {
  int status = 0;
  bool apart = false;  // the processes do not meet again
};

Ended train(const Options& options, World& world) {
  Config config = options.config;
  config.device = device_of(config.device, world);
  Prepared prepared(*options.registry, config, world);
  if (!world.alone_here()) require_same(world, common_facts(prepared, options.config));
  if (world.first()) {
    check_disk(prepared);
    check_outputs(prepared);
  }
  if (options.dry_run) {
    if (world.first()) fmt::print("{}", plan_text(options, prepared));
    return {};
  }
  if (world.first()) note_late_save(prepared.config);
  install_signal_handlers();
  Trainer trainer(prepared, world, {options.resume, options.resume_from, options.replay, options.allow_changes});
  if (world.first()) keep_configuration(options);
  const int status = trainer.run();
  if (status == 0 && world.first()) {
    const std::filesystem::path curve = config.output_dir() / "loss.png";
    fmt::print("LoRA        {}\n", final_lora(config).string());
    if (std::filesystem::exists(curve)) fmt::print("loss curve  {}\n", curve.string());
  }
  return {status, trainer.apart()};
}

// The runs of a job, one after another, as far as they are not done. Who stops one does not begin the next.
int train_all(const Options& options, const std::vector<Config>& runs, World& world) {
  Ended ended;
  for (const Config& run : runs) {
    Options one = options;
    one.config = run;
    const bool several = runs.size() > 1;
    if (several && options.dry_run) {
      if (world.first()) fmt::print("{}run        {}\n", &run == &runs.front() ? "" : "\n", run.output_dir().string());
      // Those of runs that are still to come.
      std::erase_if(one.config.model.given, [&](const auto& given) {
        return std::ranges::any_of(runs, [&](const Config& other) { return given.second.text == final_lora(other); }) &&
               !std::filesystem::exists(given.second.text);
      });
    } else if (several && world.of_first(!options.resume.empty() && is_finished(run) ? "done" : "") == "done") {
      log_info("{} is trained: {}", run.name, final_lora(run).string());
      continue;
    }
    ended = train(one, world);
    if (ended.status != 0) break;
  }
  if (!ended.apart) world.finish();
  return ended.status;
}

void refuse_for_several(const Options& options) {
  const std::string resume = options.resume.empty() || options.resume == "auto" ? "" : "--resume " + options.resume;
  const std::string given = !options.resume_from.empty() ? "--resume-from " + options.resume_from
                            : !options.replay.empty()    ? "--replay " + options.replay.string()
                                                         : resume;
  if (!given.empty())
    fail(Code::config,
         "{}: is for one run, and this job is one for each expert of the model. Give it with the config.yaml in the "
         "folder of that run",
         given);
}

}  // namespace

int run_train(const Options& options) {
  const std::vector<Config> runs = runs_of(*options.registry, options.config);
  if (runs.size() > 1) refuse_for_several(options);
  check_runs(*options.registry, runs, !options.resume.empty() || options.dry_run);
  if (options.processes > 0) return run_launcher(options);
  if (runs.size() > 1 && !launched_with_others()) {
    std::vector<std::string> names;
    for (const Config& run : runs) names.push_back(run.name);
    log_info("one run for each expert, one after another: {}", fmt::join(names, ", "));
  }
  return run_together([&](World& world) { return train_all(options, runs, world); });
}

}  // namespace lh
