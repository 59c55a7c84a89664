// The noise levels of a sampling run: which sigmas, with which timestep input of the model, in which scale of x.
//
// Flow models, t evenly spaced from 1 to 1/steps, sigma = shift(t) (or the shift of the picture's size), then 0. With
// shift_twice, t from 1 to shift(1/1000) instead, as Stability's sd3_infer and diffusers have it. In log SNR, t from
// 999/1000 to 0 in `steps` intervals.
//
// Models of discrete timesteps, N of them: steps of N / steps from the end ("trailing", Lin et al. 2024) or whole steps
// from the beginning plus an offset ("leading"), in log SNR steps + 1 of them, the last one dropped. Or Karras et al.
// 2022, equation 5: sigma^(1/7) evenly spaced between the largest and the smallest, times rounded to trained ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diffusion/noise_schedule.h"
#include "lora_host/lora_host.h"
#include "plugin/recipe.h"

namespace lh {

// x = alpha x0 + sigma noise in the sampler's scale; the model is given x * input_scale and `time`.
struct SamplingLevel {
  double alpha = 1, sigma = 0, time = 0, input_scale = 1;
  SamplingLevel for_model() const { return {alpha * input_scale, sigma * input_scale, time, 1}; }
};

class SamplingSchedule {
 public:
  // space: LH_SPACE_* of the sampler. tokens: image tokens, for a shift that follows them. Throws
  // lh::Error(Code::config) when the model has no such schedule.
  SamplingSchedule(const Recipe& recipe, int32_t space, int64_t steps, int64_t tokens, bool karras);

  int64_t steps() const { return static_cast<int64_t>(levels_.size()) - 1; }
  const SamplingLevel& level(int64_t index) const { return levels_.at(static_cast<size_t>(index)); }
  // A level between those of the run, in the same scale.
  SamplingLevel at_sigma(double sigma) const;
  // The run begins with this times a normal draw.
  double start() const { return start_; }

 private:
  void make_flow(const Recipe& recipe, int64_t steps, int64_t tokens);
  void make_discrete(const Recipe& recipe, int64_t steps, bool karras);
  std::vector<int64_t> spaced_timesteps(const ScheduleSpec& spec, int64_t steps) const;
  SamplingLevel at_ratio(double ratio, double time) const;  // of sigma / alpha in the model's scale
  int32_t space_;
  std::optional<NoiseSchedule> noise_;  // of discrete timesteps
  std::vector<SamplingLevel> levels_;
  double start_ = 1;
};

}  // namespace lh
