// Half of the steps in small even ones down to 1 - threshold, then a parabola that goes on smoothly and ends at 0;
// times the largest sigma (Movie Gen, Polyak et al. 2024, section 3.4; genmo's models, ComfyUI).
#include "schedules.h"

namespace schedules {
namespace {

class LinearQuadratic : public lora_host::Schedule {
 public:
  explicit LinearQuadratic(const Options& options) : threshold_(options.real("threshold")) {}
  Levels levels(const Facts& facts) const override {
    const double steps = facts.steps, linear = facts.steps / 2, rest = steps - linear;
    Numbers sigmas;
    if (facts.steps == 1) return ended({facts.sigma_max});
    const double slope = threshold_ / linear, excess = linear - threshold_ * steps;
    const double square = excess / (linear * rest * rest), straight = slope - 2 * excess / (rest * rest);
    for (uint32_t i = 0; i < facts.steps; ++i) {
      const double x = i, done = x < linear ? x * slope : square * x * x + straight * x + square * linear * linear;
      sigmas.push_back(facts.sigma_max * (1 - done));
    }
    return ended(std::move(sigmas));
  }

 private:
  double threshold_;
};

constexpr lh_option options[] = {
    option::real("threshold", "0.025", option::between(0, 0.5), "How far the first half of the steps goes."),
    option::end};

}  // namespace

constinit const lh_schedule linear_quadratic =
    lora_host::schedule<LinearQuadratic>({.id = "linear_quadratic", .objectives = all_models, .options = options});

}  // namespace schedules
