#include "churn.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace samplers {

constinit const lh_option churn_options[] = {
    option::real("s_churn", "0", option::at_least(0), "How much noise is added before steps, over all of them."),
    option::real("s_tmin", "0", option::at_least(0), "Only where sigma is at least this."),
    option::real("s_tmax", nullptr, option::at_least(0), "Only where sigma is at most this."),
    option::real("s_noise", "1", option::within(0, 100), "Factor of the noise that is added."), option::end};

ChurnedSampler::ChurnedSampler(const Options& options)
    : churn_(options.real("s_churn")),
      lowest_(options.real("s_tmin")),
      highest_(options.has("s_tmax") ? options.real("s_tmax") : std::numeric_limits<double>::infinity()),
      noise_(options.real("s_noise")) {}

double ChurnedSampler::begin(const Step& step) const {
  const double sigma = step.sigma();
  if (churn_ <= 0) return sigma;
  if (step.flow())
    throw Failure(LH_E_SETTING, "s_churn is for models of discrete timesteps; a flow model's x cannot take more noise");
  if (sigma < lowest_ || sigma > highest_) return sigma;
  return sigma * (1 + std::min(churn_ / step.count(), std::sqrt(2.0) - 1));
}

Names ChurnedSampler::scalars() const {
  Names names = own_scalars();
  if (shift() > 0) names.emplace_back("churn");
  return names;
}

Numbers ChurnedSampler::scalar_values(const Step& step, uint32_t stage) const {
  const double from = begin(step);
  if (stage >= shift()) {
    Numbers numbers = own_values(step, stage - shift(), from);
    if (shift() > 0) numbers.push_back(0);
    return numbers;
  }
  Numbers numbers(own_scalars().size());
  numbers.push_back(noise_ * std::sqrt(std::max(0.0, from * from - step.sigma() * step.sigma())));
  return numbers;
}

double ChurnedSampler::stage_sigma(const Step& step, uint32_t stage) const {
  if (stage < shift()) return LH_STAGE_WITHOUT_MODEL;
  const double from = begin(step);
  return stage == shift() ? from : own_sigma(step, stage - shift(), from);
}

void ChurnedSampler::build(Graph& g, uint32_t stage, const Dims& latents) const {
  if (stage >= shift()) return build_own(g, stage - shift(), latents);
  Value noise = g.mul(g.input("noise", latents, LH_F32), g.input("churn", {1}, LH_F32));
  g.output("x", g.add(g.input("x", latents, LH_F32), noise));
}

}  // namespace samplers
