// The losses that are square near 0 and straight beyond a width c, as kohya's scripts have them:
//   huber      2 c (sqrt(d^2 + c^2) - c)      smooth_l1   2 (sqrt(d^2 + c^2) - c)
// and as ai-toolkit has one, pseudo_huber: sqrt(d^2 + c^2) - c with c = 0.01. The width moves with the noise level:
//   constant     scale c
//   exponential  scale c^t, t the time from 0 to 1
//   snr          (1 - c) / (1 + 1 / sqrt(SNR))^2 + c
#pragma once

#include <string>

#include "config/config.h"
#include "plugin/recipe.h"

namespace lh {

class HuberSchedule {
 public:
  // Throws lh::Error(Code::config) for a schedule that the model does not have.
  HuberSchedule(const TrainSection& train, const Recipe& recipe);
  bool on() const { return factor_ != Factor::none; }
  // time: from 0 to 1; snr: of discrete timesteps.
  double width(double time, double snr) const;
  double factor(double width) const;  // of sqrt(d^2 + c^2) - c
  std::string text() const;

 private:
  enum class Factor { none, one, two, twice_width };
  Factor factor_ = Factor::none;
  std::string loss_, schedule_ = "constant";
  double c_ = 0.01, scale_ = 1;
};

}  // namespace lh
