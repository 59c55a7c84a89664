#include "config/schedule_params.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "config/run_settings.h"
#include "core/error.h"

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

}  // namespace

void check_schedule_params(const TrainSection& train, const std::string& source) {
  const auto complain = [&](std::string_view name, std::string_view instead) {
    fail(Code::config,
         "{}train.lr_scheduler_params.{}: lr_scheduler {} does not use it. Use lr_scheduler: {}, or remove it", source,
         name, train.lr_scheduler, instead);
  };
  for (const auto& [name, value] : train.lr_scheduler_params) {
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
    check_schedule_params(settings.train(),
                          fmt::format("{}:{}:{}: ", phase.source, phase.place.line, phase.place.column));
  }
}

}  // namespace lh
