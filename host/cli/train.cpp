// lora-host train: trains a LoRA, or with --dry-run checks everything and prints the plan.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/preflight.h"
#include "core/signals.h"
#include "encode/try_model.h"
#include "plugin/registry.h"
#include "train/trainer.h"

namespace lh {

int run_train(const Options& options) {
  const Config& config = options.config;
  const Registry& registry = *options.registry;
  try_model(registry, config.model, config.plugin, compute_dtype(config.train.dtype));
  Prepared prepared(registry, config);
  check_disk(prepared);
  check_outputs(prepared);
  if (options.dry_run) {
    fmt::print("{}\n{}", to_yaml(config), prepared.report());
    return 0;
  }
  install_signal_handlers();
  Trainer trainer(prepared, options.resume, options.resume_from, options.replay);
  publish_text(config.output_dir() / "config.yaml", to_yaml(config));
  const int status = trainer.run();
  if (status == 0) {
    const std::filesystem::path curve = config.output_dir() / "loss.png";
    fmt::print("LoRA        {}\n", (config.output_dir() / (config.name + ".safetensors")).string());
    if (std::filesystem::exists(curve)) fmt::print("loss curve  {}\n", curve.string());
  }
  return status;
}

}  // namespace lh
