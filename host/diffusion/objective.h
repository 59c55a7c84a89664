// What a training example is made of: a noise level drawn by the run's law, the noisy latents
// x_t = alpha x0 + sigma noise, and what the model should say about them.
//   flow          alpha = 1 - sigma, time = sigma     target noise - x0, where the recipe may scale the noise
//   epsilon       schedule at timestep t, time = t    target noise
//   v_prediction  the same                            target alpha noise - sigma x0
// Levels are float64 until they meet latents, which are float32.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/random.h"
#include "diffusion/huber.h"
#include "diffusion/loss_weight.h"
#include "diffusion/noise_schedule.h"
#include "diffusion/timestep_law.h"
#include "plugin/recipe.h"

namespace lh {

struct NoiseLevel {
  double alpha = 0, sigma = 0;
  float time = 0;    // the model's timestep input
  float weight = 1;  // of the sample's loss
  float width = 1;   // of a loss that has one (huber.h)
  // The time at which a step of sampling ends.
  std::optional<float> end = {};
};

class TrainingObjective {
 public:
  // Throws lh::Error(Code::config) for settings that do not fit the model.
  TrainingObjective(const TrainSection& train, const Recipe& recipe);
  // reg: of a regularization sample, which may favour other noise levels.
  NoiseLevel draw(Random& random, int64_t tokens, bool reg = false) const;
  // All spans have one length; noisy and target are written. noise: before the recipe's scale. perturbed: the noise
  // that x0 is mixed with where it is not the one that the model is to find.
  void make_pair(std::span<const float> x0, std::span<const float> noise, const NoiseLevel& level,
                 std::span<float> noisy, std::span<float> target, std::span<const float> perturbed = {}) const;
  bool weighted() const { return weight_.on() || huber_.on(); }
  const TimestepLaw& law() const { return law_; }
  // Everything that decides what is trained on, in one line: a run can only be resumed with the same.
  std::string text() const;

 private:
  NoiseLevel flow_level(double sigma) const;
  NoiseLevel discrete_level(int64_t timestep) const;
  Objective objective_;
  TimestepLaw law_;
  LossWeight weight_;
  HuberSchedule huber_;
  NoiseSpec noise_;
  NoiseScheduleSpec spec_;
  std::optional<NoiseSchedule> schedule_;  // of discrete timesteps
};

// Adds one number to each channel of noise [..., channels], offset times a normal one: without it a model hardly
// learns how bright an image is as a whole (Guttenberg 2023).
void add_noise_offset(std::span<float> noise, int64_t channels, double offset, Random random);

// Sets what is beyond so many of its own standard deviations back to that.
void clip_noise(std::span<float> noise, double deviations);

// noise + strength * another normal one (Ning et al. 2023, "Input perturbation"); strength is gamma, or evenly drawn
// below it.
std::vector<float> perturb(std::span<const float> noise, double gamma, bool drawn, Random random);

// Adds noise of coarser and coarser grids, enlarged bilinearly, to noise [..., height, width, channels], and scales the
// sum to a standard deviation of 1: so many times at most, each time discount as strong as the time before, each grid
// smaller by a ratio between 2 and 4 to the power of its number (Whitaker 2023, "multi-resolution noise").
void add_multires_noise(std::span<float> noise, int64_t height, int64_t width, int64_t channels, int64_t iterations,
                        double discount, Random random);

}  // namespace lh
