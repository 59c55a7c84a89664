// How noise levels are drawn in training. A law is a density of the time t in (0, 1), 1 being pure noise; flow models
// train at sigma = t, models of discrete timesteps at floor(steps t).
//
//   linear, uniform  t = u                                  u uniform in (0, 1), z normal
//   weighted         the same; the loss has weights (loss_weight.h)
//   linear_shift     the same, shifted as the noise levels of sampling are
//   sigmoid          t = sigmoid(scale z)
//   logit_normal     t = sigmoid(mean + std z)              Esser et al. 2024, section 3.1; a positive mean is noisier
//   mode             t = 1 - u - scale (cos^2(pi u / 2) - 1 + u)                          the same
//   cosmap           density 2 / (pi (1 - 2 t + 2 t^2)):  t = 1 - 1 / (1 + tan(pi u / 2))  the same
//   shift            sigmoid, with the model's own shift where none is given
//   one_step, two_step, four_step, eight_step   one of so few levels, as ai-toolkit has them: 1; 1 and 0.501; 1, 0.75,
//   0.5
//                    and 0.25; 1, 0.875 and so on
//   lognorm_blend    of 1000 times 750 are 1 - l / max l, l = exp(z / 3), which is mostly noisy, and 250 even, as
//                    ai-toolkit has it
//   *_shift          sigmoid, shifted by exp(mu), mu growing with the number of image tokens
// and then t' = shift t / (1 + (shift - 1) t).
//
// A recipe may stretch the times between two ranks of its law to [0, 1], and draw a share of all evenly, as the trainer
// of LTX-2 does (ltx_trainer/timestep_samplers.py): times that come out below 0.001 are mirrored there, those above 1
// are 1.
//
// Where content or style is favoured, it is drawn which share of the law's times is noisier: u^3, or 1 - u^3
// (Mou et al. 2023, "T2I-Adapter", section 3.4).
//
// Levels may be kept to a range: those outside are drawn again, or t'' = low + (high - low) t'.
//
// Of a model whose denoisers share the noise levels (recipe: denoisers) times that another one serves are drawn again.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "core/random.h"
#include "plugin/recipe.h"

namespace lh {

double sigmoid_law(double z, double scale);
double logit_normal_law(double z, double mean, double std);
double mode_law(double u, double scale);
double cosmap_law(double u);
// s t / (1 + (s - 1) t): moves mass to noisier times for s > 1.
double shift_time(double shift, double t);
// e^mu / (e^mu + 1/t - 1) = shift_time(e^mu, t).
double shift_time_mu(double mu, double t);

// The law of a run: the user's choice over the model's recipe.
class TimestepLaw {
 public:
  // Throws lh::Error(Code::config) for settings that do not fit the law or the objective.
  TimestepLaw(const TrainSection& train, const Recipe& recipe);
  // tokens: image tokens of the sample, for laws that depend on the image size.
  // reg: of a regularization sample, for which train.content_or_style_reg counts.
  double draw(Random& random, int64_t tokens, bool reg = false) const;  // Code::config where the share has no time
  const std::string& name() const { return name_; }
  double shift() const { return shift_; }
  // Everything that decides what is drawn, in one line.
  std::string text() const;

 private:
  enum class Kind { linear, sigmoid, logit_normal, mode, cosmap, lognorm_blend, steps };
  struct Draw {
    double t, rank;  // rank: the share of the law's times below t
  };
  // largest: of lognorm_blend alone, the largest of its normal numbers.
  Draw draw_one(Random& random, double largest) const;
  double draw_any(Random& random, int64_t tokens, bool reg) const;  // whichever denoiser serves it
  double time_of(double rank, double largest) const;
  double shifted(double t, int64_t tokens) const;
  double stretched(double t, int64_t tokens) const;
  void refuse_unused(const TrainSection& train) const;
  void keep_to_range(const TrainSection& train);

  std::string name_;
  Kind kind_ = Kind::linear;
  double scale_ = 1, mean_ = 0, std_ = 1, shift_ = 1;
  std::optional<ResolutionShift> resolution_;
  std::optional<std::array<double, 2>> stretch_;  // ranks whose times become 0 and 1
  double even_ = 0;                               // the share that is drawn evenly
  std::span<const double> steps_;                 // times of the kind of that name
  double lowest_ = 0, highest_ = 1;               // ranks of the times that are trained
  double above_ = 0, up_to_ = 1;                  // the share of the denoiser that is trained
  double low_ = 0, high_ = 1;                     // the range that levels are kept to
  bool scaled_ = false;                           // by moving them into it
  std::string favoured_, favoured_reg_;           // balanced, content, style
};

}  // namespace lh
