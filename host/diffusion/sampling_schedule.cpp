// Levels of a run for flow models and for models of discrete timesteps.
#include "diffusion/sampling_schedule.h"

#include <algorithm>
#include <cmath>

#include "diffusion/timestep_law.h"

namespace lh {
namespace {

// Where x / alpha or its logarithm is taken, alpha cannot be 0.
NoiseSchedule noise_in(const Recipe& recipe, int32_t space) {
  const NoiseSchedule noise(recipe.noise_schedule);
  return space == LH_SPACE_ALPHA ? noise : noise.with_signal();
}

}  // namespace

ScheduleFacts::ScheduleFacts(const Recipe& recipe, int32_t space, int64_t steps, int64_t tokens) {
  facts_.struct_size = sizeof facts_;
  facts_.steps = static_cast<uint32_t>(steps);
  facts_.objective = objective_name(recipe.objective).data();  // a literal
  facts_.space = space;
  facts_.tokens = tokens;
  if (recipe.objective == Objective::flow)
    add_flow(recipe, tokens);
  else
    add_discrete(recipe);
  facts_.timesteps = static_cast<uint32_t>(trained_sigma_.size());
  facts_.trained_sigma = trained_sigma_.data();
  facts_.sigma_min = trained_sigma_.front();
}

void ScheduleFacts::add_flow(const Recipe& recipe, int64_t tokens) {
  const ScheduleSpec& spec = recipe.sampling.schedule;
  facts_.dynamic = spec.dynamic ? 1 : 0;
  facts_.shift = spec.shift;
  facts_.mu = recipe.timestep.resolution_shift.value_or(ResolutionShift{}).mu(tokens);
  facts_.shift_twice = spec.shift_twice ? 1 : 0;
  for (int64_t i = 1; i <= spec.timesteps; ++i)
    trained_sigma_.push_back(shifted(static_cast<double>(i) / static_cast<double>(spec.timesteps)));
  facts_.sigma_max = trained_sigma_.back();
}

void ScheduleFacts::add_discrete(const Recipe& recipe) {
  const ScheduleSpec& spec = recipe.sampling.schedule;
  const NoiseSchedule noise = noise_in(recipe, facts_.space), bounded = noise.with_signal();
  for (int64_t t = 0; t < noise.steps(); ++t) trained_sigma_.push_back(noise.noise_ratio(t));
  facts_.sigma_max = bounded.noise_ratio(bounded.steps() - 1);
  facts_.spacing = spec.spacing == ScheduleSpec::Spacing::trailing ? LH_SPACING_TRAILING : LH_SPACING_LEADING;
  facts_.offset = spec.offset;
}

double ScheduleFacts::shifted(double t) const {
  return facts_.dynamic != 0 ? shift_time_mu(facts_.mu, t) : shift_time(facts_.shift, t);
}

SamplingSchedule::SamplingSchedule(const Recipe& recipe, const ScheduleFacts& facts, const LevelList& list)
    : space_(facts.get().space) {
  if (recipe.objective == Objective::flow)
    make_flow(facts, list);
  else
    make_discrete(recipe, list);
}

void SamplingSchedule::make_flow(const ScheduleFacts& facts, const LevelList& list) {
  for (const double sigma : list.sigma) levels_.push_back(at_sigma(std::min(sigma, 1.0)));
  if (space_ == LH_SPACE_LOG_SNR && levels_.front().sigma == 1) levels_.front() = at_sigma(facts.shifted(1 - 1e-4));
}

void SamplingSchedule::make_discrete(const Recipe& recipe, const LevelList& list) {
  const ScheduleSpec& spec = recipe.sampling.schedule;
  noise_ = noise_in(recipe, space_);
  for (size_t i = 0; i < list.sigma.size(); ++i) {
    const double ratio = list.sigma[i];
    const double time = std::isnan(list.time[i]) ? noise_->time_of_ratio(ratio) : list.time[i];
    const auto t = static_cast<int64_t>(time);
    const bool trained = static_cast<double>(t) == time && noise_->noise_ratio(t) == ratio;
    if (trained && space_ != LH_SPACE_SIGMA)
      levels_.push_back({noise_->alpha(t), noise_->sigma(t), time, 1});
    else
      levels_.push_back(at_ratio(ratio, time));
  }
  // Leading timesteps begin below the largest sigma, with a draw of the variance that x has there.
  const double first = levels_.front().sigma;
  if (space_ == LH_SPACE_SIGMA) {
    const bool leading = spec.spacing == ScheduleSpec::Spacing::leading;
    start_ = list.start > 0 ? list.start : leading ? std::sqrt(first * first + 1) : first;
  }
  if (list.sigma.back() > 0) return;
  const bool keeps_noise = space_ == LH_SPACE_ALPHA && !spec.set_alpha_to_one;
  levels_.back() = keeps_noise ? SamplingLevel{noise_->alpha(0), noise_->sigma(0), 0, 1} : SamplingLevel{};
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
