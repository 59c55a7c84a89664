// Sigmas between a largest and a smallest one, u running evenly from 0 to 1, then 0.
//   karras           (max^(1/rho) + u (min^(1/rho) - max^(1/rho)))^rho     Karras et al. 2022, equation 5
//   exponential      log(sigma) evenly spaced                               k-diffusion
//   polyexponential  log(sigma) = log(min) + (1 - u)^rho (log(max) - log(min))   k-diffusion
//   kl_optimal       tan(u atan(min) + (1 - u) atan(max))                  Align Your Steps, Sabour et al. 2024, eq. 15
#include <cmath>

#include "schedules.h"

namespace schedules {
namespace {

class Karras : public lora_host::Schedule {
 public:
  explicit Karras(const Options& options)
      : ends_(options), rho_(options.real("rho")), round_(options.flag("round_times")) {}
  Levels levels(const Facts& facts) const override {
    Numbers sigmas;
    const double high = ends_.high(facts), low = ends_.low(facts);
    for (const double root : evenly(std::pow(high, 1 / rho_), std::pow(low, 1 / rho_), facts.steps))
      sigmas.push_back(std::pow(root, rho_));
    Levels levels = ended(std::move(sigmas));
    if (!facts.flow() && round_)
      for (const double sigma : levels.sigma) levels.time.push_back(std::nearbyint(facts.time_at(sigma)));
    return levels;
  }

 private:
  Ends ends_;
  double rho_;
  bool round_;
};

class Polyexponential : public lora_host::Schedule {
 public:
  explicit Polyexponential(const Options& options)
      : ends_(options), rho_(options.has("rho") ? options.real("rho") : 1) {}
  Levels levels(const Facts& facts) const override {
    Numbers sigmas;
    const double high = std::log(ends_.high(facts)), low = std::log(ends_.low(facts));
    for (const double left : evenly(1, 0, facts.steps))
      sigmas.push_back(std::exp(std::pow(left, rho_) * (high - low) + low));
    return ended(std::move(sigmas));
  }

 private:
  Ends ends_;
  double rho_;
};

class KlOptimal : public lora_host::Schedule {
 public:
  explicit KlOptimal(const Options& options) : ends_(options) {}
  Levels levels(const Facts& facts) const override {
    Numbers sigmas;
    for (const double angle : evenly(std::atan(ends_.high(facts)), std::atan(ends_.low(facts)), facts.steps))
      sigmas.push_back(std::tan(angle));
    return ended(std::move(sigmas));
  }

 private:
  Ends ends_;
};

constexpr lh_option ends_only[] = {sigma_min_option, sigma_max_option, option::end};
constexpr lh_option karras_options[] = {
    option::real("rho", "7", option::within(0.1, 100), "Larger: more steps at small sigmas."), sigma_min_option,
    sigma_max_option,
    option::flag("round_times", "true",
                 "Models of discrete timesteps are told the nearest one that they were trained on."),
    option::end};
constexpr lh_option poly_options[] = {
    option::real("rho", "1", option::within(0.1, 100), "1: exponential. Larger: more steps at small sigmas."),
    sigma_min_option, sigma_max_option, option::end};

}  // namespace

constinit const lh_schedule karras =
    lora_host::schedule<Karras>({.id = "karras", .objectives = all_models, .options = karras_options});
constinit const lh_schedule exponential =
    lora_host::schedule<Polyexponential>({.id = "exponential", .objectives = all_models, .options = ends_only});
constinit const lh_schedule polyexponential =
    lora_host::schedule<Polyexponential>({.id = "polyexponential", .objectives = all_models, .options = poly_options});
constinit const lh_schedule kl_optimal =
    lora_host::schedule<KlOptimal>({.id = "kl_optimal", .objectives = all_models, .options = ends_only});

}  // namespace schedules
