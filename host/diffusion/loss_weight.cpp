// Weights of the loss by noise level, a formula each.
#include "diffusion/loss_weight.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace lh {

double sigma_sqrt_weight(double sigma) { return 1 / (sigma * sigma); }

double cosmap_weight(double sigma) { return 2 / (std::numbers::pi * (1 - 2 * sigma + 2 * sigma * sigma)); }

double bell_weight(double sigma, bool half) {
  const auto e = [](double s) { return std::exp(-2 * (0.5 - s) * (0.5 - s)); };
  // The mean of e over [0, 1] is sqrt(pi / 2) erf(1 / sqrt(2)).
  static const double mean = std::sqrt(std::numbers::pi / 2) * std::erf(1 / std::numbers::sqrt2) - e(0);
  return (e(half ? std::max(sigma, 0.5) : sigma) - e(0)) / mean;
}

double measured_weight(double sigma) {
  constexpr double series[] = {0.9589, -0.4193, -0.0872, 0.1259, -0.162, 0.0309, -0.0461,
                               0.0195, -0.0003, 0.015,   0.0046, 0.0073, -0.0001};
  const double angle = std::acos(std::clamp(1 - 2 * sigma, -1.0, 1.0));
  double sum = 0;
  for (size_t k = 0; k < std::size(series); ++k) sum += series[k] * std::cos(static_cast<double>(k) * angle);
  return sum;
}

double min_snr_weight(Objective objective, double snr, double gamma) {
  if (objective == Objective::v_prediction) return std::min(snr, gamma) / (snr + 1);
  return snr <= gamma ? 1 : gamma / snr;
}

double debiased_weight(Objective objective, double snr) {
  constexpr double largest = 1000;
  const double bounded = std::min(snr, largest);
  return objective == Objective::v_prediction ? 1 / (bounded + 1) : 1 / std::sqrt(bounded);
}

LossWeight::LossWeight(const TrainSection& train, const Recipe& recipe) : objective_(recipe.objective) {
  const bool flow = recipe.objective == Objective::flow;
  const bool min_snr = train.min_snr_gamma.value_or(0) > 0;
  if (flow && (min_snr || train.debiased_estimation_loss))
    fail(Code::config,
         "train.{}: weighs by the signal-to-noise ratio of discrete timesteps, but this model is trained by flow "
         "matching; remove it, or use train.weighting_scheme: cosmap or sigma_sqrt",
         min_snr ? "min_snr_gamma" : "debiased_estimation_loss");
  if (min_snr && train.debiased_estimation_loss)
    fail(Code::config, "train.min_snr_gamma and train.debiased_estimation_loss both weigh the loss; keep one");
  const std::string& asked = train.weighting_scheme;
  const bool weighted = train.timestep_type == "weighted";
  if (weighted && !asked.empty() && asked != "none")
    fail(Code::config,
         "train.weighting_scheme: {} and train.timestep_type: weighted both weigh the loss; use timestep_type: linear "
         "for the first alone",
         asked);
  if (!flow && (asked == "sigma_sqrt" || asked == "cosmap" || asked == "bell" || asked == "half_bell"))
    fail(Code::config,
         "train.weighting_scheme: {} is a weight for flow models, this one is of objective {}; use "
         "train.min_snr_gamma",
         asked, objective_name(recipe.objective));
  const std::string& scheme = asked.empty() ? recipe.timestep.weighting : asked;
  if (scheme == "sigma_sqrt") kind_ = Kind::sigma_sqrt;
  if (scheme == "cosmap") kind_ = Kind::cosmap;
  if (scheme == "bell") kind_ = Kind::bell;
  if (scheme == "half_bell") kind_ = Kind::half_bell;
  if (weighted) kind_ = Kind::measured;
  if (min_snr) kind_ = Kind::min_snr;
  if (train.debiased_estimation_loss) kind_ = Kind::debiased;
  gamma_ = train.min_snr_gamma.value_or(0);
}

double LossWeight::at_sigma(double sigma) const {
  // Peers draw from 1000 levels, so that 1/1000 is the least of them; without a bound the mean would not exist.
  constexpr double least = 1e-3;
  switch (kind_) {
    case Kind::sigma_sqrt: return sigma_sqrt_weight(std::max(sigma, least));
    case Kind::cosmap: return cosmap_weight(sigma);
    case Kind::bell: return bell_weight(sigma, false);
    case Kind::half_bell: return bell_weight(sigma, true);
    case Kind::measured: return measured_weight(sigma);
    default: return 1;
  }
}

double LossWeight::at_snr(double snr) const {
  switch (kind_) {
    case Kind::min_snr: return min_snr_weight(objective_, snr, gamma_);
    case Kind::debiased: return debiased_weight(objective_, snr);
    default: return 1;
  }
}

std::string LossWeight::text() const {
  switch (kind_) {
    case Kind::none: return "none";
    case Kind::sigma_sqrt: return "sigma_sqrt";
    case Kind::cosmap: return "cosmap";
    case Kind::bell: return "bell";
    case Kind::half_bell: return "half_bell";
    case Kind::measured: return "weighted";
    case Kind::min_snr: return fmt::format("min_snr {}", gamma_);
    case Kind::debiased: return "debiased";
  }
  return "";
}

}  // namespace lh
