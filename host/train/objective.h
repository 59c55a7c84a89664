// Training objectives and the laws of noise, each once; which of them a model uses stands in its recipe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/recipe.h"
#include "train/random.h"

namespace lh {

// Logistic function of scale * z: z normal gives the logit-normal law of Esser et al. 2024.
double sigmoid_law(double z, double scale);
// s t / (1 + (s - 1) t): moves mass to noisier times for s > 1.
double shift_time(double shift, double t);
// e^mu / (e^mu + 1/t - 1) = shift_time(e^mu, t).
double shift_time_mu(double mu, double t);

// How times are drawn in a run: the user's choice over the model's recipe.
class TimestepLaw {
 public:
  TimestepLaw(const TrainSection& train, const Recipe& recipe);
  // tokens: image tokens of the sample, for laws that depend on the image size.
  double draw(Random& random, int64_t tokens) const;

 private:
  enum class Kind { linear, sigmoid, shift, resolution_shift } kind_;
  double scale_ = 1, shift_ = 1;
  ResolutionShift resolution_;
};

// Rectified flow: noisy = (1 - sigma) x0 + sigma noise, target = noise - x0.
void flow_pair(std::span<const float> x0, std::span<const float> noise, double sigma, std::span<float> noisy,
               std::span<float> target);

// Sigmas of a sampling run, steps + 1 of them, the last 0.
std::vector<double> flow_sigmas(const SamplingSpec& sampling, const TimestepSpec& timestep, int64_t steps,
                                int64_t tokens);

}  // namespace lh
