// The noise levels of a sampling run in the scale of a sampler: what schedules of plugins are told, and what is made of
// their answer.
//
// Levels of flow models are sigma, and so is the model's time. Levels of models of discrete timesteps are sigma /
// alpha; a level that is one of the N trained ones has exactly its alpha and sigma, others those of a schedule that
// keeps alpha^2 + sigma^2 at 1. A sampler in log SNR cannot begin at alpha 0: the first sigma of a flow model is then
// that of time 1 - 1e-4, as in ComfyUI, and a schedule with zero terminal SNR keeps a trace of the image.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "diffusion/noise_schedule.h"
#include "lora_host/lora_host.h"
#include "plugin/recipe.h"
#include "plugin/schedule.h"

namespace lh {

// x = alpha x0 + sigma noise in the sampler's scale; the model is given x * input_scale and `time`.
struct SamplingLevel {
  double alpha = 1, sigma = 0, time = 0, input_scale = 1;
  SamplingLevel for_model() const { return {alpha * input_scale, sigma * input_scale, time, 1}; }
};

// lh_schedule_facts with what they point to.
class ScheduleFacts {
 public:
  // space: LH_SPACE_* of the sampler. tokens: image tokens, for shifts that follow them.
  ScheduleFacts(const Recipe& recipe, int32_t space, int64_t steps, int64_t tokens);
  ScheduleFacts(const ScheduleFacts&) = delete;
  ScheduleFacts& operator=(const ScheduleFacts&) = delete;
  const lh_schedule_facts& get() const { return facts_; }
  // The model's shift of a time of a flow model.
  double shifted(double t) const;

 private:
  void add_flow(const Recipe& recipe, int64_t tokens);
  void add_discrete(const Recipe& recipe);
  std::vector<double> trained_sigma_;
  lh_schedule_facts facts_{};
};

class SamplingSchedule {
 public:
  // list: an answer to these facts.
  SamplingSchedule(const Recipe& recipe, const ScheduleFacts& facts, const LevelList& list);

  int64_t steps() const { return static_cast<int64_t>(levels_.size()) - 1; }
  const SamplingLevel& level(int64_t index) const { return levels_.at(static_cast<size_t>(index)); }
  // A level between those of the run, in the same scale.
  SamplingLevel at_sigma(double sigma) const;
  // The run begins with this times a normal draw.
  double start() const { return start_; }

 private:
  void make_flow(const ScheduleFacts& facts, const LevelList& list);
  void make_discrete(const Recipe& recipe, const LevelList& list);
  SamplingLevel at_ratio(double ratio, double time) const;  // of sigma / alpha in the model's scale
  int32_t space_;
  std::optional<NoiseSchedule> noise_;  // of discrete timesteps
  std::vector<SamplingLevel> levels_;
  double start_ = 1;
};

}  // namespace lh
