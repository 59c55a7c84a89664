#include "config/schedule_params.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "config/run_settings.h"
#include "core/error.h"
#include "core/log.h"

namespace lh {
namespace {

// Parameters that some schedules read (run/lr_schedule.cpp). All read those of a fall at the end, and all but
// `constant` those of a warm-up.
const struct {
  std::string_view name;
  std::vector<std::string_view> schedules;
} read_by_some[] = {
    {"num_cycles", {"cosine", "cosine_with_restarts"}},
    {"power", {"polynomial"}},
    {"lr_end", {"polynomial"}},
    {"step_size", {"step"}},
    {"gamma", {"step"}},
    {"rex_d", {"rex"}},
    {"timescale", {"inverse_sqrt"}},
};

std::string source_of(const Phase& phase) {
  return fmt::format("{}:{}:{}: ", phase.source, phase.place.line, phase.place.column);
}

void warn_of_long_schedule(const RunSettings& settings, const std::string& source) {
  TrainSection train = settings.train();
  train.steps = settings.schedule_steps();
  const double warmup = train.lr_scheduler == "constant" ? 0 : steps_of_part(train, "warmup");
  const double decay = steps_of_part(train, "decay"), all = static_cast<double>(train.steps);
  if (warmup + std::max(decay, 1.0) <= all) return;
  log_warning(
      "{}train.lr_scheduler_params: {} steps of warm-up{} in {} steps: the learning rate never comes above {:.0f}% of "
      "lr. Set fewer, or more train.steps",
      source, warmup, decay > 0 ? fmt::format(" and {} of decay", decay) : "", train.steps,
      std::floor(100 * all / (warmup + decay)));
}

}  // namespace

void check_schedule_params(const TrainSection& train, const std::string& source) {
  const auto complain = [&](std::string_view name, std::string_view instead) {
    fail(Code::config,
         "{}train.lr_scheduler_params.{}: lr_scheduler {} does not use it. Use lr_scheduler: {}, or remove it", source,
         name, train.lr_scheduler, instead);
  };
  for (const auto& [name, value] : train.lr_scheduler_params) {
    if (name.ends_with("_ratio") && value > 1)
      fail(Code::config, "{}train.lr_scheduler_params.{}: must be at most 1, a share of all steps, found {}", source,
           name, value);
    if (train.lr_scheduler == "constant" && name.starts_with("warmup_") && value != 0)
      complain(name, "constant_with_warmup");
    for (const auto& row : read_by_some)
      if (row.name == name && std::ranges::find(row.schedules, train.lr_scheduler) == row.schedules.end())
        complain(name, row.schedules.front());
  }
}

void check_schedules(const TrainSection& train) {
  check_schedule_params(RunSettings(train).train());
  for (size_t i = 1; i < train.phases.size(); ++i) {
    const Phase& phase = train.phases[i];
    RunSettings settings(train);
    settings.enter_phase(i);
    check_schedule_params(settings.train(), source_of(phase));
  }
}

double steps_of_part(const TrainSection& train, const std::string& what) {
  const auto option = [&](const std::string& name, double otherwise) {
    const auto found = train.lr_scheduler_params.find(name);
    return found == train.lr_scheduler_params.end() ? otherwise : found->second;
  };
  return option(what + "_steps", std::floor(option(what + "_ratio", 0) * static_cast<double>(train.steps)));
}

void warn_of_long_schedules(const TrainSection& train, const std::string& source) {
  warn_of_long_schedule(RunSettings(train), source);
  for (size_t i = 1; i < train.phases.size(); ++i) {
    RunSettings settings(train);
    settings.enter_phase(i);
    // One that has no schedule of its own goes on with the one before.
    if (settings.schedule_first() > 0) warn_of_long_schedule(settings, source_of(train.phases[i]));
  }
}

}  // namespace lh
