// Noisy latents and targets for the three objectives.
#include "diffusion/objective.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace lh {
namespace {

// Of a sample: the sum of squares over one less than there are.
double deviation_of(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float v : values) sum += static_cast<double>(v);
  const auto count = static_cast<double>(values.size());
  const double mean = sum / count;
  for (const float v : values) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  return std::sqrt(squares / (count - 1));
}

}  // namespace

TrainingObjective::TrainingObjective(const TrainSection& train, const Recipe& recipe)
    : objective_(recipe.objective),
      law_(train, recipe),
      weight_(train, recipe),
      huber_(train, recipe),
      noise_(recipe.noise),
      spec_(recipe.noise_schedule) {
  if (objective_ != Objective::flow) schedule_.emplace(spec_);
}

NoiseLevel TrainingObjective::draw(Random& random, int64_t tokens, bool reg) const {
  const double t = law_.draw(random, tokens, reg);
  if (!schedule_) return flow_level(t);
  return discrete_level(
      std::min(static_cast<int64_t>(t * static_cast<double>(schedule_->steps())), schedule_->steps() - 1));
}

NoiseLevel TrainingObjective::flow_level(double sigma) const {
  const auto time = static_cast<float>(sigma);  // latents are mixed at the very time that the model is told
  const double width = huber_.width(time, 0);
  return {1 - double{time}, time, time, static_cast<float>(weight_.at_sigma(time) * huber_.factor(width)),
          static_cast<float>(width)};
}

NoiseLevel TrainingObjective::discrete_level(int64_t timestep) const {
  const double snr = schedule_->snr(timestep);
  const double width = huber_.width(static_cast<double>(timestep) / static_cast<double>(schedule_->steps()), snr);
  return {schedule_->alpha(timestep), schedule_->sigma(timestep), static_cast<float>(timestep),
          static_cast<float>(weight_.at_snr(snr) * huber_.factor(width)), static_cast<float>(width)};
}

void TrainingObjective::make_pair(std::span<const float> x0, std::span<const float> noise, const NoiseLevel& level,
                                  std::span<float> noisy, std::span<float> target,
                                  std::span<const float> perturbed) const {
  const std::span<const float> mixed = perturbed.empty() ? noise : perturbed;
  const auto sigma = static_cast<float>(level.sigma), scale = static_cast<float>(noise_.scale);
  const float alpha = objective_ == Objective::flow ? 1 - sigma : static_cast<float>(level.alpha);
  for (size_t i = 0; i < x0.size(); ++i) noisy[i] = alpha * x0[i] + sigma * (scale * mixed[i]);
  switch (objective_) {
    case Objective::flow:
      for (size_t i = 0; i < x0.size(); ++i) target[i] = scale * noise[i] - x0[i];
      break;
    case Objective::epsilon: std::ranges::copy(noise, target.begin()); break;
    case Objective::v_prediction:
      for (size_t i = 0; i < x0.size(); ++i) target[i] = alpha * noise[i] - sigma * x0[i];
      break;
  }
}

std::string TrainingObjective::text() const {
  std::string line = fmt::format("{}; timesteps {}; weight {}; loss {}", objective_name(objective_), law_.text(),
                                 weight_.text(), huber_.text());
  if (noise_.scale != 1) line += fmt::format("; noise times {}", noise_.scale);
  if (noise_.clip > 0) line += fmt::format("; noise within {} standard deviations", noise_.clip);
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

void clip_noise(std::span<float> noise, double deviations) {
  const auto most = static_cast<float>(deviations * deviation_of(noise));
  for (float& v : noise) v = std::clamp(v, -most, most);
}

std::vector<float> perturb(std::span<const float> noise, double gamma, bool drawn, Random random) {
  const double strength = drawn ? gamma * random.uniform() : gamma;
  std::vector<float> perturbed(noise.size());
  random.fill_normal(perturbed);
  for (size_t i = 0; i < noise.size(); ++i) perturbed[i] = noise[i] + static_cast<float>(strength) * perturbed[i];
  return perturbed;
}

namespace {

// [height, width, channels] of `from` at the places of a larger grid, bilinearly, edges repeated.
void add_enlarged(std::span<const float> from, int64_t from_h, int64_t from_w, std::span<float> to, int64_t h,
                  int64_t w, double factor) {
  const int64_t channels = static_cast<int64_t>(to.size()) / (h * w);
  struct Tap {
    int64_t low, high;
    double share;  // of high
  };
  const auto tap = [](int64_t i, int64_t small, int64_t large) {
    const double at =
        std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(small) / static_cast<double>(large) - 0.5);
    const auto low = static_cast<int64_t>(at);
    return Tap{low, std::min(low + 1, small - 1), at - static_cast<double>(low)};
  };
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      const Tap down = tap(y, from_h, h), across = tap(x, from_w, w);
      for (int64_t c = 0; c < channels; ++c) {
        const auto at = [&](int64_t row, int64_t column) {
          return static_cast<double>(from[static_cast<size_t>((row * from_w + column) * channels + c)]);
        };
        const double top = at(down.low, across.low) * (1 - across.share) + at(down.low, across.high) * across.share;
        const double bottom =
            at(down.high, across.low) * (1 - across.share) + at(down.high, across.high) * across.share;
        to[static_cast<size_t>((y * w + x) * channels + c)] +=
            static_cast<float>(factor * (top * (1 - down.share) + bottom * down.share));
      }
    }
}

}  // namespace

void add_multires_noise(std::span<float> noise, int64_t height, int64_t width, int64_t channels, int64_t iterations,
                        double discount, Random random) {
  const auto frame = static_cast<size_t>(height * width * channels);
  for (int64_t i = 0; i < iterations; ++i) {
    const double ratio = std::pow(random.uniform() * 2 + 2, static_cast<double>(i));
    const auto shrunk = [&](int64_t side) {
      return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(side) / ratio));
    };
    const int64_t h = shrunk(height), w = shrunk(width);
    std::vector<float> coarse(static_cast<size_t>(h * w * channels));
    for (size_t at = 0; at < noise.size(); at += frame) {
      random.fill_normal(coarse);
      add_enlarged(coarse, h, w, noise.subspan(at, frame), height, width, std::pow(discount, static_cast<double>(i)));
    }
    if (h == 1 || w == 1) break;
  }
  const double deviation = deviation_of(noise);
  for (float& v : noise) v = static_cast<float>(static_cast<double>(v) / deviation);
}

}  // namespace lh
