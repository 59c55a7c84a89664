#include "diffusion/noise_schedule.h"

#include <algorithm>
#include <cmath>

namespace lh {
namespace {

// betas whose square roots (scaled_linear) or which themselves (linear) grow evenly.
std::vector<double> betas(const NoiseScheduleSpec& spec) {
  const bool scaled = spec.kind == "scaled_linear";
  const double from = scaled ? std::sqrt(spec.beta_start) : spec.beta_start;
  const double to = scaled ? std::sqrt(spec.beta_end) : spec.beta_end;
  std::vector<double> list;
  for (int64_t t = 0; t < spec.steps; ++t) {
    const double value = from + (to - from) * static_cast<double>(t) / static_cast<double>(spec.steps - 1);
    list.push_back(scaled ? value * value : value);
  }
  return list;
}

// sqrt(a) moved and scaled so that the first value stays and the last is 0.
void rescale_zero_terminal_snr(std::vector<double>& alphas_cumprod) {
  const double first = std::sqrt(alphas_cumprod.front()), last = std::sqrt(alphas_cumprod.back());
  for (double& a : alphas_cumprod) {
    const double root = (std::sqrt(a) - last) * first / (first - last);
    a = root * root;
  }
}

}  // namespace

NoiseSchedule::NoiseSchedule(const NoiseScheduleSpec& spec) {
  double product = 1;
  for (const double beta : betas(spec)) alphas_cumprod_.push_back(product *= 1 - beta);
  if (spec.zero_terminal_snr) rescale_zero_terminal_snr(alphas_cumprod_);
}

double NoiseSchedule::alpha(int64_t t) const { return std::sqrt(alpha_cumprod(t)); }
double NoiseSchedule::sigma(int64_t t) const { return std::sqrt(1 - alpha_cumprod(t)); }
double NoiseSchedule::snr(int64_t t) const { return alpha_cumprod(t) / (1 - alpha_cumprod(t)); }
double NoiseSchedule::noise_ratio(int64_t t) const { return std::sqrt((1 - alpha_cumprod(t)) / alpha_cumprod(t)); }

double NoiseSchedule::time_of_ratio(double ratio) const {
  const auto more_noise = [&](double a) { return std::sqrt((1 - a) / a) >= ratio; };
  const auto above = std::ranges::find_if(alphas_cumprod_, more_noise);
  if (above == alphas_cumprod_.begin()) return 0;
  if (above == alphas_cumprod_.end()) return static_cast<double>(steps() - 1);
  const int64_t high = above - alphas_cumprod_.begin();
  const double low_log = std::log(noise_ratio(high - 1)), high_log = std::log(noise_ratio(high));
  return static_cast<double>(high - 1) + (std::log(ratio) - low_log) / (high_log - low_log);
}

NoiseSchedule NoiseSchedule::with_signal() const {
  NoiseSchedule copy = *this;
  if (copy.alphas_cumprod_.back() == 0) copy.alphas_cumprod_.back() = 0x1p-24;
  return copy;
}

}  // namespace lh
