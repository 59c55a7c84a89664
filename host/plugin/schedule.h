// A schedule of a plugin with its options, whose answer is checked.
#pragma once

#include <string>
#include <vector>

#include "plugin/part.h"

namespace lh {

// The levels of a run as schedule.h of the SDK has them: sigma / alpha of models of discrete timesteps, sigma of flow
// models.
struct LevelList {
  std::vector<double> sigma;  // falling
  std::vector<double> time;   // NaN: to be found
  double start = 0;           // 0: the host's
};

class Schedule {
 public:
  // Throws lh::Error(Code::config) for options that it does not take.
  Schedule(const Offered<lh_schedule>& offered, const GivenOptions& params)
      : part_("schedule", offered, params, "sample.scheduler_params") {}

  const char* id() const { return part_->id; }
  // Throws lh::Error(Code::config) where the run cannot be had, (Code::plugin) for a list that breaks the contract of
  // schedule.h.
  LevelList levels(const lh_schedule_facts& facts) const;

 private:
  Part<lh_schedule> part_;
};

}  // namespace lh
