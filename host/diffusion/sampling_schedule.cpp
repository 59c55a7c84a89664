#include "diffusion/sampling_schedule.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "diffusion/timestep_law.h"

namespace lh {
namespace {

constexpr double smallest_time = 1e-3;  // flow models are trained on 1000 levels, says every peer's schedule

// `count` numbers from `first` to `last`, both included.
std::vector<double> evenly(double first, double last, int64_t count) {
  std::vector<double> list;
  for (int64_t i = 0; i < count; ++i)
    list.push_back(count == 1 ? first
                              : first + (last - first) * static_cast<double>(i) / static_cast<double>(count - 1));
  return list;
}

std::vector<double> karras_sigmas(double largest, double smallest, int64_t steps) {
  constexpr double rho = 7;
  std::vector<double> sigmas;
  for (const double root : evenly(std::pow(largest, 1 / rho), std::pow(smallest, 1 / rho), steps))
    sigmas.push_back(std::pow(root, rho));
  return sigmas;
}

}  // namespace

SamplingSchedule::SamplingSchedule(const Recipe& recipe, int32_t space, int64_t steps, int64_t tokens, bool karras)
    : space_(space) {
  if (recipe.objective == Objective::flow) {
    if (karras)
      fail(Code::config,
           "sample.scheduler: karras spaces the sigmas of models of discrete timesteps, this one is a flow model; use "
           "sample.scheduler: normal");
    make_flow(recipe, steps, tokens);
  } else {
    make_discrete(recipe, steps, karras);
  }
}

void SamplingSchedule::make_flow(const Recipe& recipe, int64_t steps, int64_t tokens) {
  const ScheduleSpec& spec = recipe.sampling.schedule;
  const double mu = recipe.timestep.resolution_shift.value_or(ResolutionShift{}).mu(tokens);
  const auto shifted = [&](double t) { return spec.dynamic ? shift_time_mu(mu, t) : shift_time(spec.shift, t); };
  std::vector<double> times;
  if (space_ == LH_SPACE_LOG_SNR) {
    times = evenly(1 - smallest_time, 0, steps + 1);
    times.pop_back();
  } else if (spec.shift_twice) {
    times = evenly(1, shifted(smallest_time), steps);
  } else {
    for (int64_t i = 0; i < steps; ++i) times.push_back(1 - static_cast<double>(i) / static_cast<double>(steps));
  }
  for (const double t : times) levels_.push_back(at_sigma(shifted(t)));
  levels_.push_back(at_sigma(0));
}

std::vector<int64_t> SamplingSchedule::spaced_timesteps(const ScheduleSpec& spec, int64_t steps) const {
  const int64_t count = noise_->steps(), dropped = space_ == LH_SPACE_LOG_SNR ? 1 : 0;
  std::vector<int64_t> times;
  for (int64_t i = 0; i < steps; ++i) {
    const double down = static_cast<double>(i) * static_cast<double>(count) / static_cast<double>(steps);
    times.push_back(spec.spacing == ScheduleSpec::Spacing::trailing
                        ? std::llrint(static_cast<double>(count) - down) - 1
                        : (steps - 1 - i + dropped) * (count / (steps + dropped)) + spec.offset);
  }
  const bool falling = std::ranges::adjacent_find(times, std::ranges::less_equal{}) == times.end();
  if (!falling || times.front() >= count || times.back() < 0)
    fail(Code::config, "sample.sample_steps: {} is too many for a model of {} timesteps", steps, count);
  return times;
}

void SamplingSchedule::make_discrete(const Recipe& recipe, int64_t steps, bool karras) {
  const ScheduleSpec& spec = recipe.sampling.schedule;
  noise_.emplace(recipe.noise_schedule);
  // Where x / alpha or its logarithm is taken, alpha cannot be 0.
  if (space_ != LH_SPACE_ALPHA) noise_ = noise_->with_signal();
  if (karras) {
    const NoiseSchedule bounded = noise_->with_signal();
    for (const double ratio : karras_sigmas(bounded.noise_ratio(bounded.steps() - 1), bounded.noise_ratio(0), steps))
      levels_.push_back(at_ratio(ratio, std::nearbyint(bounded.time_of_ratio(ratio))));
  } else {
    for (const int64_t t : spaced_timesteps(spec, steps)) {
      const auto time = static_cast<double>(t);
      if (space_ == LH_SPACE_SIGMA)
        levels_.push_back(at_ratio(noise_->noise_ratio(t), time));
      else
        levels_.push_back({noise_->alpha(t), noise_->sigma(t), time, 1});
    }
  }
  // Leading timesteps begin below the largest sigma, with a draw of the variance that x has there.
  const double first = levels_.front().sigma;
  if (space_ == LH_SPACE_SIGMA)
    start_ = spec.spacing == ScheduleSpec::Spacing::leading ? std::sqrt(first * first + 1) : first;
  const bool keeps_noise = space_ == LH_SPACE_ALPHA && !spec.set_alpha_to_one;
  levels_.push_back(keeps_noise ? SamplingLevel{noise_->alpha(0), noise_->sigma(0), 0, 1} : SamplingLevel{});
}

SamplingLevel SamplingSchedule::at_ratio(double ratio, double time) const {
  const double alpha = 1 / std::sqrt(1 + ratio * ratio);
  return space_ == LH_SPACE_SIGMA ? SamplingLevel{1, ratio, time, alpha} : SamplingLevel{alpha, ratio * alpha, time, 1};
}

SamplingLevel SamplingSchedule::at_sigma(double sigma) const {
  if (!noise_) return {1 - sigma, sigma, sigma, 1};
  const auto same = std::ranges::find(levels_, sigma, &SamplingLevel::sigma);
  if (same != levels_.end()) return *same;
  const double ratio = space_ == LH_SPACE_SIGMA ? sigma : sigma / std::sqrt(1 - sigma * sigma);
  return at_ratio(ratio, noise_->time_of_ratio(ratio));
}

}  // namespace lh
