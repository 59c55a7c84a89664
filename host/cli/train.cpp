// lora-host train: trains a LoRA, or with --dry-run checks everything and prints the plan.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

#include "cli/commands.h"
#include "cli/preflight.h"
#include "core/progress.h"
#include "core/signals.h"
#include "encode/try_model.h"
#include "plugin/registry.h"
#include "train/fact_changes.h"
#include "train/facts.h"
#include "train/trainer.h"
#include "world/world.h"

namespace lh {
namespace {

// `cuda` is the GPU of this process: as many as there are processes on the machine, unless the launcher gave it one.
std::string device_of(const std::string& asked, const World& world) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool given_one =
      visible != nullptr && *visible != '\0' && std::string_view(visible).find(',') == std::string::npos;
  if (asked != "cuda" || world.local_size() == 1 || given_one) return asked;
  return fmt::format("cuda:{}", world.local_rank());
}

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
      spdlog::info("settings since the run was last started: {}", changes);
  publish_text(file, now);
}

int train(const Options& options, World& world) {
  Config config = options.config;
  config.device = device_of(config.device, world);
  Prepared prepared(*options.registry, config, world.size());
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
  try_model(*options.registry, options.config.model, options.config.plugin, compute_dtype(options.config.train.dtype));
  const std::unique_ptr<World> joined = join_world();
  World& world = joined ? *joined : World::alone();
  if (world.alone_here()) return train(options, world);
  // One process speaks for all; what ends another is told all the same.
  if (!world.first() && std::getenv("LORA_LOG") == nullptr) spdlog::set_level(spdlog::level::err);
  const auto own = [&](const Error& e) { return Error(e.code(), world.name(world.rank()) + ": " + e.what()); };
  try {
    return train(options, world);
  } catch (const RankLost& e) {
    // Said first: a launcher ends this process, too, soon after another one has left.
    Progress::make_room();
    fmt::print(stderr, "lora-host: error: {}\n", own(e).what());
    world.leave_apart();
    return static_cast<int>(e.code());
  } catch (const Interrupted&) {
    world.leave_apart();
    throw;
  } catch (const Error& e) {
    world.leave(static_cast<int>(e.code()));
    throw own(e);
  } catch (...) {
    world.leave(static_cast<int>(Code::resource));
    throw;
  }
}

}  // namespace lh
