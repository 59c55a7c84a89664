// The laws by which training draws its noise levels, with their densities.
#include "diffusion/timestep_law.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/math/special_functions/erf.hpp>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/error.h"

namespace lh {

double sigmoid_law(double z, double scale) { return 1 / (1 + std::exp(-scale * z)); }

double logit_normal_law(double z, double mean, double std) { return 1 / (1 + std::exp(-(mean + std * z))); }

double mode_law(double u, double scale) {
  const double c = std::cos(std::numbers::pi / 2 * u);
  return 1 - u - scale * (c * c - 1 + u);
}

double cosmap_law(double u) { return 1 - 1 / (1 + std::tan(std::numbers::pi / 2 * u)); }

double shift_time(double shift, double t) { return shift * t / (1 + (shift - 1) * t); }

double shift_time_mu(double mu, double t) { return std::exp(mu) / (std::exp(mu) + 1 / t - 1); }

namespace {

constexpr double least_time = 1e-3;  // of a law that is stretched, or even in part

constexpr int64_t denoising_steps = 1000;  // of train.min_denoising_steps and max_denoising_steps

// The share of normal numbers below z.
double normal_rank(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

double normal_of_rank(double rank) { return -std::numbers::sqrt2 * boost::math::erfc_inv(2 * rank); }

// Of lognorm_blend: numbers of the lognormal part, its share and its width.
constexpr double lognormal_count = 750, lognormal_share = 0.75, lognormal_width = 0.333;

// The share of its times below t, where `largest` is the largest of the normal numbers.
double lognorm_blend_rank(double t, double largest) {
  if (t >= 1) return 1;
  const double below = normal_rank(largest + std::log(1 - t) / lognormal_width) / normal_rank(largest);
  return lognormal_share * (1 - below) + (1 - lognormal_share) * t;
}

// The law of `train.weighting_scheme`, which names both densities and loss weights.
bool is_density(const std::string& scheme) { return scheme == "logit_normal" || scheme == "mode"; }

// One name for one law.
std::string canonical(const std::string& type) { return type == "uniform" ? "linear" : type; }

// The times of a law that draws one of few; none: it is another.
std::span<const double> steps_of(const std::string& type) {
  static constexpr double one[] = {1}, two[] = {1, 0.501}, four[] = {1, 0.75, 0.5, 0.25},
                          eight[] = {1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125};
  if (type == "one_step") return one;
  if (type == "two_step") return two;
  if (type == "four_step") return four;
  if (type == "eight_step") return eight;
  return {};
}

std::string chosen_type(const TrainSection& train, const Recipe& recipe) {
  if (!is_density(train.weighting_scheme))
    return canonical(train.timestep_type.empty() ? recipe.timestep.type : train.timestep_type);
  if (!train.timestep_type.empty() && train.timestep_type != train.weighting_scheme)
    fail(Code::config,
         "train.weighting_scheme: {} says how noise levels are drawn, and so does train.timestep_type: {}; keep one",
         train.weighting_scheme, train.timestep_type);
  return train.weighting_scheme;
}

}  // namespace

TimestepLaw::TimestepLaw(const TrainSection& train, const Recipe& recipe) : name_(chosen_type(train, recipe)) {
  const bool flow = recipe.objective == Objective::flow;
  if (train.noise_scheduler == (flow ? "ddpm" : "flowmatch"))
    fail(Code::config, "train.noise_scheduler: {} is not what this model is trained with: use {}, or leave it out",
         train.noise_scheduler, flow ? "flowmatch" : "ddpm");
  steps_ = steps_of(name_);
  if (!flow && (name_ == "weighted" || name_ == "linear_shift" || name_ == "lognorm_blend" || !steps_.empty()))
    fail(Code::config, "train.timestep_type: {} is for flow models; this one is trained on {} timesteps. Use linear",
         name_, recipe.noise_schedule.steps);
  const bool own = name_ == canonical(recipe.timestep.type);
  if (name_ == "linear" || name_ == "weighted" || name_ == "linear_shift") {
    kind_ = Kind::linear;
    // Shifted as sampling is.
    if (name_ == "linear_shift" && recipe.sampling.schedule.dynamic)
      resolution_ = recipe.timestep.resolution_shift.value_or(ResolutionShift{});
  } else if (!steps_.empty()) {
    kind_ = Kind::steps;
  } else if (name_ == "sigmoid" || name_ == "shift") {
    kind_ = Kind::sigmoid;
  } else if (name_ == "logit_normal") {
    kind_ = Kind::logit_normal;
  } else if (name_ == "mode") {
    kind_ = Kind::mode;
  } else if (name_ == "cosmap") {
    kind_ = Kind::cosmap;
  } else if (name_ == "lognorm_blend") {
    kind_ = Kind::lognorm_blend;
  } else if (name_.ends_with("_shift")) {
    if (recipe.objective != Objective::flow)
      fail(Code::config, "train.timestep_type: {} is for flow models; this one is trained on {} timesteps", name_,
           recipe.noise_schedule.steps);
    kind_ = name_ == "linear_flux_shift" ? Kind::linear : Kind::sigmoid;
    resolution_ = recipe.timestep.resolution_shift.value_or(ResolutionShift{});
  } else {
    fail(Code::config, "train.timestep_type: '{}' is not known", name_);
  }
  if (own) {
    stretch_ = recipe.timestep.stretch;
    even_ = recipe.timestep.even;
  }
  refuse_unused(train);
  scale_ = kind_ == Kind::mode ? train.mode_scale.value_or(1.29)
                               : train.sigmoid_scale.value_or(own || resolution_ ? recipe.timestep.scale : 1);
  mean_ = train.logit_mean.value_or(0);
  std_ = train.logit_std.value_or(1);
  shift_ = train.timestep_shift.value_or(own || name_ == "shift"   ? recipe.timestep.shift
                                         : name_ == "linear_shift" ? recipe.sampling.schedule.shift
                                                                   : 1);
  if (train.max_denoising_steps < train.min_denoising_steps)
    fail(Code::config, "train.max_denoising_steps: {} is below train.min_denoising_steps: {}",
         train.max_denoising_steps, train.min_denoising_steps);
  keep_to_range(train);
  favoured_ = train.content_or_style;
  favoured_reg_ = train.content_or_style_reg;
  // Denoising steps count from pure noise.
  lowest_ = 1 - static_cast<double>(train.max_denoising_steps + 1) / denoising_steps;
  highest_ = 1 - static_cast<double>(train.min_denoising_steps) / denoising_steps;
  if (const auto own_share = std::ranges::find(recipe.denoisers, "denoiser", &DenoiserSpec::role);
      own_share != recipe.denoisers.end()) {
    above_ = own_share->above;
    if (own_share != recipe.denoisers.begin()) up_to_ = std::prev(own_share)->above;
  }
}

void TimestepLaw::keep_to_range(const TrainSection& train) {
  const std::vector<double>& range = train.noise_range;
  if (range.empty()) return;
  if (range.size() != 2 || range[0] >= range[1])
    fail(Code::config, "train.noise_range: expected two numbers, the second above the first, found [{}]",
         fmt::join(range, ", "));
  low_ = range[0];
  high_ = range[1];
  scaled_ = train.noise_range_fit == "scale";
}

void TimestepLaw::refuse_unused(const TrainSection& train) const {
  struct Row {
    const char* key;
    bool given, used;
    const char* of;
  };
  const Row rows[] = {
      {"sigmoid_scale", train.sigmoid_scale.has_value(), kind_ == Kind::sigmoid, "sigmoid, shift and flux_shift"},
      {"logit_mean", train.logit_mean.has_value(), kind_ == Kind::logit_normal, "logit_normal"},
      {"logit_std", train.logit_std.has_value(), kind_ == Kind::logit_normal, "logit_normal"},
      {"mode_scale", train.mode_scale.has_value(), kind_ == Kind::mode, "mode"},
      {"timestep_shift", train.timestep_shift.has_value(), !resolution_ && kind_ != Kind::steps,
       "all types whose shift is not that of the "
       "image's size"},
  };
  for (const Row& row : rows)
    if (row.given && !row.used)
      fail(Code::config, "train.{}: belongs to timestep_type {}, but noise levels are drawn by {}; remove it", row.key,
           row.of, name_);
}

TimestepLaw::Draw TimestepLaw::draw_one(Random& random, double largest) const {
  if (kind_ == Kind::sigmoid || kind_ == Kind::logit_normal) {
    const double z = random.normal();
    return {kind_ == Kind::sigmoid ? sigmoid_law(z, scale_) : logit_normal_law(z, mean_, std_), normal_rank(z)};
  }
  const double u = random.uniform();
  if (kind_ == Kind::lognorm_blend) {
    const double z = normal_of_rank(random.uniform() * normal_rank(largest));
    const double t = u < lognormal_share ? 1 - std::exp(lognormal_width * (z - largest)) : random.uniform();
    return {t, lognorm_blend_rank(t, largest)};
  }
  switch (kind_) {
    case Kind::mode: return {mode_law(u, scale_), 1 - u};
    case Kind::cosmap: return {cosmap_law(u), u};
    default: return {u, u};
  }
}

double TimestepLaw::time_of(double rank, double largest) const {
  const double z = normal_of_rank(rank);
  switch (kind_) {
    case Kind::sigmoid: return sigmoid_law(z, scale_);
    case Kind::logit_normal: return logit_normal_law(z, mean_, std_);
    case Kind::mode: return mode_law(1 - rank, scale_);
    case Kind::cosmap: return cosmap_law(rank);
    case Kind::lognorm_blend: {
      constexpr int halvings = 50;
      double low = 0, high = 1;
      for (int i = 0; i < halvings; ++i)
        (lognorm_blend_rank((low + high) / 2, largest) < rank ? low : high) = (low + high) / 2;
      return (low + high) / 2;
    }
    case Kind::linear:
    case Kind::steps: return rank;
  }
  return rank;
}

double TimestepLaw::draw(Random& random, int64_t tokens, bool reg) const {
  constexpr int most = 100000;  // a law that hits the share less often than that misses it
  for (int i = 0; i < most; ++i) {
    double t = draw_any(random, tokens, reg);
    if (scaled_) t = low_ + (high_ - low_) * t;
    if (t >= low_ && t <= high_ && (above_ == 0 || t > above_) && t <= up_to_) return t;
  }
  if (low_ > 0 || high_ < 1)
    fail(Code::config,
         "train.noise_range: timestep_type {} draws no noise level from {} to {}{}; look at timestep_shift, or say "
         "noise_range_fit: scale",
         name_, low_, high_,
         above_ > 0 || up_to_ < 1
             ? fmt::format(" and above {} and up to {}, which this denoiser serves", above_, up_to_)
             : "");
  fail(
      Code::config,
      "train.timestep_type: {} draws no noise level above {} and up to {}, which is what this denoiser serves of those "
      "that share the levels; take linear, or look at timestep_shift, min_denoising_steps and max_denoising_steps",
      name_, above_, up_to_);
}

double TimestepLaw::draw_any(Random& random, int64_t tokens, bool reg) const {
  if (kind_ == Kind::steps) return steps_[random.below(steps_.size())];
  Draw drawn{};
  const bool even = even_ > 0 && random.uniform() < even_;
  const double largest =
      kind_ == Kind::lognorm_blend ? normal_of_rank(std::pow(random.uniform(), 1 / lognormal_count)) : 0;
  const std::string& favoured = reg ? favoured_reg_ : favoured_;
  if (favoured != "balanced") {
    constexpr double least = 1e-9;  // the ends of a law may be at infinity
    const double u = random.uniform(), cube = u * u * u;
    const double rank = highest_ - (favoured == "content" ? cube : 1 - cube) * (highest_ - lowest_);
    drawn.t = even ? rank : time_of(std::clamp(rank, least, 1 - least), largest);
  } else {
    // Shifts keep the order of times, so the limits hold before and after them.
    do {
      if (even)
        drawn.t = drawn.rank = random.uniform();
      else
        drawn = draw_one(random, largest);
    } while (drawn.rank < lowest_ || (highest_ < 1 && drawn.rank >= highest_));
  }
  if (even) return least_time + (1 - least_time) * drawn.t;
  return stretch_ ? stretched(drawn.t, tokens) : shifted(drawn.t, tokens);
}

double TimestepLaw::shifted(double t, int64_t tokens) const {
  return resolution_ ? shift_time_mu(resolution_->mu(tokens), t) : shift_time(shift_, t);
}

double TimestepLaw::stretched(double t, int64_t tokens) const {
  const auto [low, high] = *stretch_;
  const double first = shifted(time_of(low, 0), tokens), last = shifted(time_of(high, 0), tokens);
  const double whole = (shifted(t, tokens) - first) / (last - first);
  return std::clamp(whole < least_time ? 2 * least_time - whole : whole, 0.0, 1.0);
}

std::string TimestepLaw::text() const {
  std::string line = name_;
  if (kind_ == Kind::sigmoid || kind_ == Kind::mode) line += fmt::format(" scale {}", scale_);
  if (kind_ == Kind::logit_normal) line += fmt::format(" mean {} std {}", mean_, std_);
  if (resolution_)
    line += fmt::format(" mu {} at {} tokens to {} at {}{}", resolution_->base, resolution_->base_tokens,
                        resolution_->max, resolution_->max_tokens, resolution_->logarithmic ? " by logarithm" : "") +
            (resolution_->capped ? " at most" : "");
  else
    line += fmt::format(" shift {}", shift_);
  if (stretch_) line += fmt::format(" stretched from ranks {} to {}", (*stretch_)[0], (*stretch_)[1]);
  if (even_ > 0) line += fmt::format(" {} of them evenly", even_);
  for (const auto& [favoured, of] : {std::pair(&favoured_, ""), std::pair(&favoured_reg_, " of regularization images")})
    if (*favoured != "balanced") line += fmt::format(" favouring {}{}", *favoured, of);
  if (lowest_ > 0 || highest_ < 1) line += fmt::format(" ranks {} to {}", lowest_, highest_);
  if (low_ > 0 || high_ < 1) line += fmt::format(" {} {} to {}", scaled_ ? "scaled to" : "from", low_, high_);
  if (above_ > 0 || up_to_ < 1) line += fmt::format(" above {} up to {}", above_, up_to_);
  return line;
}

}  // namespace lh
