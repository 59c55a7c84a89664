// Schedules of flow models: times from 1 to 1 / steps, shifted.
//   shift_terminal  stretched so that the last sigma before 0 is `terminal`:
//                   sigma = 1 - (1 - z) (1 - terminal) / (1 - z_last), z the shifted time (diffusers' shift_terminal)
//   mu_by_steps     shifted by exp(mu), where mu is linear in image tokens, a tokens + b: `few` = [a, b] holds for 10
//                   steps, `many` for 200, and mu lies linearly between; above `most_tokens`, `many` for any number of
//                   steps (diffusers' compute_empirical_mu, whose numbers are the defaults)
#include <cmath>

#include "schedules.h"

namespace schedules {
namespace {

class ShiftTerminal : public lora_host::Schedule {
 public:
  explicit ShiftTerminal(const Options& options) : terminal_(options.real("terminal")) {}
  Levels levels(const Facts& facts) const override {
    Levels levels = shifted(facts, flow_times(facts));
    const double last = levels.sigma[facts.steps - 1];
    if (facts.steps == 1) return levels;  // 1, then 0: nothing to stretch
    for (uint32_t i = 0; i < facts.steps; ++i)
      levels.sigma[i] = 1 - (1 - levels.sigma[i]) * (1 - terminal_) / (1 - last);
    return levels;
  }

 private:
  double terminal_;
};

class MuBySteps : public lora_host::Schedule {
 public:
  explicit MuBySteps(const Options& options)
      : few_(options.reals("few")), many_(options.reals("many")), most_tokens_(options.integer("most_tokens")) {}
  Levels levels(const Facts& facts) const override {
    const auto tokens = static_cast<double>(facts.tokens), steps = static_cast<double>(facts.steps);
    const double at_10 = few_[0] * tokens + few_[1], at_200 = many_[0] * tokens + many_[1];
    Facts own = facts;
    own.dynamic = 1;
    own.mu = facts.tokens > most_tokens_ ? at_200 : at_10 + (at_200 - at_10) / 190 * (steps - 10);
    return shifted(own, flow_times(facts));
  }

 private:
  Numbers few_, many_;
  int64_t most_tokens_;
};

constexpr lh_option terminal_options[] = {
    option::real("terminal", "0.02", option::between(0, 1), "The last sigma before 0."), option::end};
constexpr lh_option mu_options[] = {
    option::reals("few", "[8.73809524e-05, 1.89833333]", 2, option::any, "Slope and height of mu at 10 steps."),
    option::reals("many", "[0.00016927, 0.45666666]", 2, option::any, "Slope and height of mu at 200 steps."),
    option::integer("most_tokens", "4300", option::at_least(0), "Above, `many` holds for any number of steps."),
    option::end};

}  // namespace

constinit const lh_schedule shift_terminal = lora_host::schedule<ShiftTerminal>(
    {.id = "shift_terminal", .objectives = flow_models, .options = terminal_options});
constinit const lh_schedule mu_by_steps =
    lora_host::schedule<MuBySteps>({.id = "mu_by_steps", .objectives = flow_models, .options = mu_options});

}  // namespace schedules
