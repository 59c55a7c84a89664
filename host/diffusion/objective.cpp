// Noisy latents and targets for the three objectives.
#include "diffusion/objective.h"

#include <algorithm>

#include "core/error.h"

namespace lh {

TrainingObjective::TrainingObjective(const TrainSection& train, const Recipe& recipe)
    : objective_(recipe.objective), law_(train, recipe), weight_(train, recipe), spec_(recipe.noise_schedule) {
  if (objective_ != Objective::flow) schedule_.emplace(spec_);
}

NoiseLevel TrainingObjective::draw(Random& random, int64_t tokens) const {
  const double t = law_.draw(random, tokens);
  if (!schedule_) return flow_level(t);
  return discrete_level(
      std::min(static_cast<int64_t>(t * static_cast<double>(schedule_->steps())), schedule_->steps() - 1));
}

NoiseLevel TrainingObjective::flow_level(double sigma) const {
  const auto time = static_cast<float>(sigma);  // latents are mixed at the very time that the model is told
  return {1 - double{time}, time, time, static_cast<float>(weight_.at_sigma(time))};
}

NoiseLevel TrainingObjective::discrete_level(int64_t timestep) const {
  return {schedule_->alpha(timestep), schedule_->sigma(timestep), static_cast<float>(timestep),
          static_cast<float>(weight_.at_snr(schedule_->snr(timestep)))};
}

void TrainingObjective::make_pair(std::span<const float> x0, std::span<const float> noise, const NoiseLevel& level,
                                  std::span<float> noisy, std::span<float> target) const {
  const auto sigma = static_cast<float>(level.sigma);
  const float alpha = objective_ == Objective::flow ? 1 - sigma : static_cast<float>(level.alpha);
  for (size_t i = 0; i < x0.size(); ++i) noisy[i] = alpha * x0[i] + sigma * noise[i];
  switch (objective_) {
    case Objective::flow:
      for (size_t i = 0; i < x0.size(); ++i) target[i] = noise[i] - x0[i];
      break;
    case Objective::epsilon: std::ranges::copy(noise, target.begin()); break;
    case Objective::v_prediction:
      for (size_t i = 0; i < x0.size(); ++i) target[i] = alpha * noise[i] - sigma * x0[i];
      break;
  }
}

std::string TrainingObjective::text() const {
  std::string line =
      fmt::format("{}; timesteps {}; weight {}", objective_name(objective_), law_.text(), weight_.text());
  if (schedule_)
    line += fmt::format("; betas {} {} to {} in {} steps{}", spec_.kind, spec_.beta_start, spec_.beta_end, spec_.steps,
                        spec_.zero_terminal_snr ? ", zero terminal SNR" : "");
  return line;
}

void add_noise_offset(std::span<float> noise, int64_t channels, double offset, Random random) {
  std::vector<float> constants(static_cast<size_t>(channels));
  random.fill_normal(constants);
  for (size_t i = 0; i < noise.size(); ++i)
    noise[i] += static_cast<float>(offset) * constants[i % static_cast<size_t>(channels)];
}

}  // namespace lh
