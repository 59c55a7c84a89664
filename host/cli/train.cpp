// lora-host train: trains a LoRA, or with --dry-run checks everything and prints the plan.
#include <fmt/core.h>

#include "cli/commands.h"
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

int train(const Options& options, World& world) {
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
    world.finish();
    return 0;
  }
  install_signal_handlers();
  Trainer trainer(prepared, world, {options.resume, options.resume_from, options.replay, options.allow_changes});
  if (world.first()) keep_configuration(options);
  const int status = trainer.run();
  if (!trainer.apart()) world.finish();
  if (status == 0 && world.first()) {
    const std::filesystem::path curve = config.output_dir() / "loss.png";
    fmt::print("LoRA        {}\n", (config.output_dir() / (config.name + ".safetensors")).string());
    if (std::filesystem::exists(curve)) fmt::print("loss curve  {}\n", curve.string());
  }
  return status;
}

}  // namespace

int run_train(const Options& options) {
  try_model(*options.registry, options.config.model, options.config.plugin, compute_dtype(options.config.train.dtype),
            keys_of_images(options.config));
  if (options.processes > 0) return run_launcher(options);
  return run_together([&](World& world) { return train(options, world); });
}

}  // namespace lh
