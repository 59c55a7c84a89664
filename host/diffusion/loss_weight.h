// Weights of the loss of one sample, by how noisy it is.
//   flow models (Esser et al. 2024):  sigma_sqrt  sigma^-2        cosmap  2 / (pi (1 - 2 sigma + 2 sigma^2))
//                                     bell    b(sigma) = e(sigma) - e(0), with e(sigma) = exp(-2 (1/2 - sigma)^2), as a
//                                             share of its mean; half_bell  the same, b(1/2) where sigma < 1/2
//                                     weighted  a Chebyshev series that follows ai-toolkit's table of 1000 weights,
//                                     which
//                                             was measured, within 0.03 and 0.003 on average
//   discrete timesteps, snr = alpha^2 / sigma^2:
//     min_snr (Hang et al. 2023)      epsilon: min(snr, gamma) / snr     v_prediction: min(snr, gamma) / (snr + 1)
//     debiased (Yu et al. 2024)       epsilon: 1 / sqrt(min(snr, 1000))  v_prediction: 1 / (min(snr, 1000) + 1)
#pragma once

#include <string>

#include "config/config.h"
#include "plugin/recipe.h"

namespace lh {

double sigma_sqrt_weight(double sigma);
double cosmap_weight(double sigma);
double bell_weight(double sigma, bool half);
double measured_weight(double sigma);
// No image left (snr 0): 1 for epsilon, the limit, and 0 for v_prediction.
double min_snr_weight(Objective objective, double snr, double gamma);
double debiased_weight(Objective objective, double snr);

// The weighting of a run: the user's choice over the model's recipe.
class LossWeight {
 public:
  // Throws lh::Error(Code::config) for a weighting that does not fit the objective.
  LossWeight(const TrainSection& train, const Recipe& recipe);
  bool on() const { return kind_ != Kind::none; }
  double at_sigma(double sigma) const;  // flow
  double at_snr(double snr) const;      // epsilon, v_prediction
  std::string text() const;

 private:
  enum class Kind { none, sigma_sqrt, cosmap, bell, half_bell, measured, min_snr, debiased } kind_ = Kind::none;
  Objective objective_;
  double gamma_ = 0;
};

}  // namespace lh
