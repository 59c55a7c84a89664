// The noise of epsilon and v_prediction models at each training timestep t = 0 .. steps - 1:
//   x_t = alpha x0 + sigma noise,  alpha = sqrt(a_t),  sigma = sqrt(1 - a_t),  a_t = product of (1 - beta) up to t
// All in float64. Ho et al. 2020; scaled_linear: Rombach et al. 2022; zero terminal SNR: Lin et al. 2024, algorithm 1.
#pragma once

#include <cstdint>
#include <vector>

#include "plugin/recipe.h"

namespace lh {

class NoiseSchedule {
 public:
  explicit NoiseSchedule(const NoiseScheduleSpec& spec);
  explicit NoiseSchedule(std::vector<double> alphas_cumprod) : alphas_cumprod_(std::move(alphas_cumprod)) {}

  int64_t steps() const { return static_cast<int64_t>(alphas_cumprod_.size()); }
  double alpha_cumprod(int64_t t) const { return alphas_cumprod_.at(static_cast<size_t>(t)); }
  double alpha(int64_t t) const;
  double sigma(int64_t t) const;
  double snr(int64_t t) const;          // a / (1 - a)
  double noise_ratio(int64_t t) const;  // sigma / alpha: the sigma of x0 + sigma noise
  // The timestep of a noise ratio, between whole ones where log(ratio) lies between theirs; the ends are not exceeded.
  double time_of_ratio(double ratio) const;
  // The same with a last timestep that keeps a trace of the image (a = 2^-24) where there was none, for samplers that
  // divide by alpha.
  NoiseSchedule with_signal() const;

 private:
  std::vector<double> alphas_cumprod_;
};

}  // namespace lh
