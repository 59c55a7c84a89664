// The schedule that a model was made for.
//   flow      times from 1 to 1 / steps, shifted (diffusers' pipelines); with shift_twice from 1 to the shifted 1 /
//   1000
//             (Stability's sd3_infer); in log SNR from 999 / 1000 to 0 in `steps` intervals
//             (DPMSolverMultistepScheduler)
//   discrete  the spacing that the recipe names
#include "schedules.h"

namespace schedules {
namespace {

constexpr double smallest_time = 1e-3;  // flow models are trained on 1000 levels, says every peer's schedule

class Normal : public lora_host::Schedule {
 public:
  explicit Normal(const Options& /*options*/) {}
  Levels levels(const Facts& facts) const override {
    if (!facts.flow())
      return trained(facts, facts.spacing == LH_SPACING_TRAILING ? trailing_timesteps(facts)
                                                                 : leading_timesteps(facts, facts.offset));
    if (facts.space == LH_SPACE_LOG_SNR) {
      Numbers times = evenly(1 - smallest_time, 0, facts.steps + int64_t{1});
      times.pop_back();
      return shifted(facts, times);
    }
    if (facts.shift_twice != 0) return shifted(facts, evenly(1, facts.shifted(smallest_time), facts.steps));
    return shifted(facts, flow_times(facts));
  }
};

constexpr const char* names[] = {"default", nullptr};

}  // namespace

constinit const lh_schedule normal =
    lora_host::schedule<Normal>({.id = "normal", .aliases = names, .objectives = all_models});

}  // namespace schedules
