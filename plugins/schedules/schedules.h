// The schedules of this plugin, one file for each kind, and what several of them share.
#pragma once

#include "lora_host/lora_host.hpp"

namespace schedules {

using lora_host::Facts;
using lora_host::Failure;
using lora_host::Levels;
using lora_host::Options;
namespace option = lora_host::option;

using Numbers = std::vector<double>;

inline constexpr const char* all_models[] = {"flow", "epsilon", "v_prediction", nullptr};
inline constexpr const char* flow_models[] = {"flow", nullptr};
inline constexpr const char* discrete_models[] = {"epsilon", "v_prediction", nullptr};

// `count` numbers from `first` to `last`, both included; of one, the first.
Numbers evenly(double first, double last, int64_t count);
// 1, 1 - 1 / steps, ... 1 / steps: the times of a flow model.
Numbers flow_times(const Facts& facts);
// Each time of a flow model shifted as the model's are, and the end at 0.
Levels shifted(const Facts& facts, const Numbers& times);
// The levels of training timesteps, which have to fall, and the end at 0. Throws where there are too many.
Levels trained(const Facts& facts, const std::vector<int64_t>& timesteps);
// With 0 behind them.
Levels ended(Numbers sigmas);

// The ends between which sigmas are spaced: options sigma_min and sigma_max, else those of the model.
inline constexpr lh_option sigma_min_option = option::real(
    "sigma_min", nullptr, option::above(0), "The last sigma before 0; unless given, the model's smallest.");
inline constexpr lh_option sigma_max_option =
    option::real("sigma_max", nullptr, option::above(0), "The first sigma; unless given, the model's largest.");
class Ends {
 public:
  explicit Ends(const Options& options);
  double low(const Facts& facts) const;
  double high(const Facts& facts) const;

 private:
  double low_ = 0, high_ = 0;  // 0: the model's
};

// How models of discrete timesteps are spaced (evenly_spaced.cpp).
std::vector<int64_t> leading_timesteps(const Facts& facts, int64_t offset);
std::vector<int64_t> trailing_timesteps(const Facts& facts);

extern const lh_schedule normal, simple, sgm_uniform, ddim_uniform, linspace, leading, trailing, karras, exponential;
extern const lh_schedule polyexponential, beta, linear_quadratic, kl_optimal, shift_terminal, mu_by_steps, lcm, table;
extern const lh_schedule logit_normal;

}  // namespace schedules
