// Quantiles of the sigmoid of a normal number, shifted as the levels of the model are, so that many steps lie where
// such a model was trained most: sigma = shifted(1 / (1 + exp(-mean - std z))), z below which a normal number lies with
// the probability 1 - i / steps. The first z is infinite and its sigma 1, or `sigma_max`.
#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <numbers>

#include "schedules.h"

namespace schedules {
namespace {

class LogitNormal : public lora_host::Schedule {
 public:
  explicit LogitNormal(const Options& options)
      : mean_(options.real("mean")), std_(options.real("std")), most_(options.real("sigma_max")) {}

  Levels levels(const Facts& facts) const override {
    Numbers sigmas;
    for (const double share : flow_times(facts)) {
      const double sigma = share < 1 ? facts.shifted(time(share)) : most_;
      if (!sigmas.empty() && sigma >= sigmas.back())
        throw Failure(LH_E_SETTING, "schedule 'logit_normal': with mean " + std::to_string(mean_) + " and std " +
                                        std::to_string(std_) + " level " + std::to_string(sigmas.size()) + " is " +
                                        std::to_string(sigma) + ", not below the one before, " +
                                        std::to_string(sigmas.back()) +
                                        ": give it a smaller mean or std, or a larger sigma_max");
      sigmas.push_back(sigma);
    }
    return ended(std::move(sigmas));
  }

 private:
  double time(double share) const {
    const double z = -std::numbers::sqrt2 * boost::math::erfc_inv(2 * share);
    return 1 / (1 + std::exp(-mean_ - std_ * z));
  }

  double mean_, std_, most_;
};

constexpr lh_option options[] = {
    option::real("mean", "0", option::within(-100, 100), "Of the normal number; above 0: more steps at noisy levels."),
    option::real("std", "1", option::within(0.01, 100), "Its standard deviation; larger: more steps at both ends."),
    option::real("sigma_max", "1", option::within(0.9, 1), "The first sigma."), option::end};

}  // namespace

constinit const lh_schedule logit_normal =
    lora_host::schedule<LogitNormal>({.id = "logit_normal", .objectives = flow_models, .options = options});

}  // namespace schedules
