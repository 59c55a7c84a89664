// What several schedules share.
#include "schedules.h"

namespace schedules {

Numbers evenly(double first, double last, int64_t count) {
  Numbers list;
  for (int64_t i = 0; i < count; ++i)
    list.push_back(count == 1 ? first
                              : first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1));
  return list;
}

Numbers flow_times(const Facts& facts) {
  Numbers times;
  for (uint32_t i = 0; i < facts.steps; ++i)
    times.push_back(1 - static_cast<double>(i) / static_cast<double>(facts.steps));
  return times;
}

Levels ended(Numbers sigmas) {
  sigmas.push_back(0);
  return {std::move(sigmas)};
}

Levels shifted(const Facts& facts, const Numbers& times) {
  Numbers sigmas;
  for (const double t : times) sigmas.push_back(facts.shifted(t));
  return ended(std::move(sigmas));
}

Levels trained(const Facts& facts, const std::vector<int64_t>& timesteps) {
  const bool falling = std::adjacent_find(timesteps.begin(), timesteps.end(), std::less_equal<>()) == timesteps.end();
  if (!falling || timesteps.front() >= facts.timesteps || timesteps.back() < 0)
    throw Failure(LH_E_SETTING, std::to_string(facts.steps) + " steps are too many for a model of " +
                                    std::to_string(facts.timesteps) + " timesteps; lower sample.sample_steps");
  Levels levels;
  for (const int64_t t : timesteps) {
    levels.sigma.push_back(facts.trained_sigma[t]);
    levels.time.push_back(static_cast<double>(t));
  }
  levels.sigma.push_back(0);
  levels.time.push_back(0);
  return levels;
}

Ends::Ends(const Options& options) {
  if (options.has("sigma_min")) low_ = options.real("sigma_min");
  if (options.has("sigma_max")) high_ = options.real("sigma_max");
  if (low_ > 0 && high_ > 0 && low_ >= high_) throw Failure(LH_E_SETTING, "sigma_min is not below sigma_max");
}

double Ends::low(const Facts& facts) const { return low_ > 0 ? low_ : facts.sigma_min; }

double Ends::high(const Facts& facts) const {
  const double high = high_ > 0 ? high_ : facts.sigma_max;
  if (low(facts) >= high)
    throw Failure(LH_E_SETTING, "sigmas from " + std::to_string(high) + " to " + std::to_string(low(facts)) +
                                    " do not fall; the model's go from " + std::to_string(facts.sigma_max) + " to " +
                                    std::to_string(facts.sigma_min));
  return high;
}

}  // namespace schedules
