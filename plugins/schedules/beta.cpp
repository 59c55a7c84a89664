// Quantiles of a beta distribution (Lee et al. 2024, "Beta Sampling is All You Need"), q its inverse:
//   timesteps  the training levels rint(q(1 - i / steps) (N - 1)), equal neighbours once, so there may be fewer steps
//              (ComfyUI)
//   sigmas     min + q(1 - i / (steps - 1)) (max - min)                                                     (diffusers)
#include <boost/math/special_functions/beta.hpp>
#include <cmath>

#include "schedules.h"

namespace schedules {
namespace {

class Beta : public lora_host::Schedule {
 public:
  explicit Beta(const Options& options)
      : ends_(options),
        alpha_(options.real("alpha")),
        beta_(options.real("beta")),
        of_sigmas_(options.text("of") == "sigmas") {}

  Levels levels(const Facts& facts) const override {
    if (of_sigmas_) {
      Numbers sigmas;
      const double low = ends_.low(facts), high = ends_.high(facts);
      for (const double share : evenly(1, 0, facts.steps)) sigmas.push_back(low + quantile(share) * (high - low));
      return ended(std::move(sigmas));
    }
    std::vector<int64_t> times;
    for (uint32_t i = 0; i < facts.steps; ++i) {
      const double share = 1 - static_cast<double>(i) / static_cast<double>(facts.steps);
      const int64_t t = std::llrint(quantile(share) * (facts.timesteps - 1.0));
      if (times.empty() || t != times.back()) times.push_back(t);
    }
    Levels levels = trained(facts, times);
    if (facts.flow()) levels.time.clear();
    return levels;
  }

 private:
  double quantile(double share) const { return boost::math::ibeta_inv(alpha_, beta_, share); }
  Ends ends_;
  double alpha_, beta_;
  bool of_sigmas_;
};

constexpr const char* what[] = {"timesteps", "sigmas", nullptr};
constexpr lh_option options[] = {
    option::real("alpha", "0.6", option::within(0.01, 100), "Below 1: more steps near the end."),
    option::real("beta", "0.6", option::within(0.01, 100), "Below 1: more steps near the beginning."),
    option::choice("of", "timesteps", what, "What has the distribution: training timesteps, or sigma itself."),
    sigma_min_option,
    sigma_max_option,
    option::end};

}  // namespace

constinit const lh_schedule beta =
    lora_host::schedule<Beta>({.id = "beta", .objectives = all_models, .options = options});

}  // namespace schedules
