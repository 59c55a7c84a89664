#include "train/objective.h"

#include <cmath>

#include "core/error.h"

namespace lh {

double sigmoid_law(double z, double scale) { return 1 / (1 + std::exp(-scale * z)); }

double shift_time(double shift, double t) { return shift * t / (1 + (shift - 1) * t); }

double shift_time_mu(double mu, double t) { return std::exp(mu) / (std::exp(mu) + 1 / t - 1); }

TimestepLaw::TimestepLaw(const TrainSection& train, const Recipe& recipe) {
  if (recipe.objective != "flow")
    fail(Code::plugin, "objective '{}' of model family '{}' is not known to this host (known: flow)", recipe.objective,
         recipe.family);
  const std::string& type = train.timestep_type.empty() ? recipe.timestep.type : train.timestep_type;
  scale_ = train.sigmoid_scale.value_or(1);
  shift_ = train.timestep_shift.value_or(recipe.timestep.shift);
  if (type == "linear") {
    kind_ = Kind::linear;
  } else if (type == "sigmoid") {
    kind_ = Kind::sigmoid;
  } else if (type == "shift") {
    kind_ = Kind::shift;
  } else if (type.ends_with("_shift")) {
    kind_ = Kind::resolution_shift;
    resolution_ = recipe.timestep.resolution_shift.value_or(ResolutionShift{});
  } else {
    fail(Code::config, "train.timestep_type: '{}' is not known", type);
  }
}

double TimestepLaw::draw(Random& random, int64_t tokens) const {
  switch (kind_) {
    case Kind::linear: return random.uniform();
    case Kind::sigmoid: return sigmoid_law(random.normal(), scale_);
    case Kind::shift: return shift_time(shift_, sigmoid_law(random.normal(), scale_));
    case Kind::resolution_shift: return shift_time_mu(resolution_.mu(tokens), sigmoid_law(random.normal(), scale_));
  }
  return 0;
}

void flow_pair(std::span<const float> x0, std::span<const float> noise, double sigma, std::span<float> noisy,
               std::span<float> target) {
  const auto s = static_cast<float>(sigma);
  for (size_t i = 0; i < x0.size(); ++i) {
    noisy[i] = (1 - s) * x0[i] + s * noise[i];
    target[i] = noise[i] - x0[i];
  }
}

std::vector<double> flow_sigmas(const SamplingSpec& sampling, const TimestepSpec& timestep, int64_t steps,
                                int64_t tokens) {
  std::vector<double> sigmas;
  const double mu = timestep.resolution_shift.value_or(ResolutionShift{}).mu(tokens);
  for (int64_t i = 0; i < steps; ++i) {
    const double t = 1 - static_cast<double>(i) / static_cast<double>(steps);
    sigmas.push_back(sampling.dynamic ? shift_time_mu(mu, t) : shift_time(sampling.shift, t));
  }
  sigmas.push_back(0);
  return sigmas;
}

}  // namespace lh
