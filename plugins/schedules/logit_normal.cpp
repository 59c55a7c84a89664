// Quantiles of the sigmoid of a normal number, so that many steps lie where such a model was trained most:
// sigma = 1 / (1 + exp(-mean - std z)), z below which a normal number lies with the probability 1 - i / steps, and then
// shifted: as the model's levels are, or by sqrt(tokens / base_tokens). The first z is infinite and its sigma 1, or
// `sigma_max`.
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>

#include "schedules.h"

namespace schedules {
namespace {

class LogitNormal : public lora_host::Schedule {
 public:
  explicit LogitNormal(const Options& options)
      : mean_(options.real("mean")),
        std_(options.real("std")),
        most_(options.real("sigma_max")),
        base_(static_cast<double>(options.integer("base_tokens"))) {}

  Levels levels(const Facts& facts) const override {
    Numbers sigmas;
    const double mean = base_ > 0 ? mean_ + std::log(static_cast<double>(facts.tokens) / base_) / 2 : mean_;
    for (const double share : flow_times(facts)) {
      const double time = share < 1 ? quantile(share, mean) : most_;
      sigmas.push_back(share < 1 && base_ == 0 ? facts.shifted(time) : time);
    }
    return ended(std::move(sigmas));
  }

 private:
  double quantile(double share, double mean) const {
    const double z = -std::numbers::sqrt2 * boost::math::erfc_inv(2 * share);
    return 1 / (1 + std::exp(-mean - std_ * z));
  }

  double mean_, std_, most_, base_;
};

constexpr lh_option options[] = {
    option::real("mean", "0", option::within(-100, 100), "Of the normal number; above 0: more steps at noisy levels."),
    option::real("std", "1", option::within(0.01, 100), "Its standard deviation; larger: more steps at both ends."),
    option::real("sigma_max", "1", option::within(0.9, 1), "The first sigma."),
    option::integer("base_tokens", "0", option::at_least(0),
                    "The image of so many tokens is not shifted, others by the ratio of their sides to it; 0: levels "
                    "are shifted as the model's are."),
    option::end};

}  // namespace

constinit const lh_schedule logit_normal =
    lora_host::schedule<LogitNormal>({.id = "logit_normal", .objectives = flow_models, .options = options});

}  // namespace schedules
