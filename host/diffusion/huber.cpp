#include "diffusion/huber.h"

#include <cmath>

#include "core/error.h"

namespace lh {

HuberSchedule::HuberSchedule(const TrainSection& train, const Recipe& recipe) : loss_(train.loss) {
  if (loss_ == "pseudo_huber") factor_ = Factor::one;
  if (loss_ != "huber" && loss_ != "smooth_l1") return;
  factor_ = loss_ == "huber" ? Factor::twice_width : Factor::two;
  const bool flow = recipe.objective == Objective::flow;
  schedule_ = !train.huber_schedule.empty() ? train.huber_schedule : flow ? "exponential" : "snr";
  if (flow && schedule_ == "snr")
    fail(Code::config,
         "train.huber_schedule: snr follows the signal-to-noise ratio of discrete timesteps, but this model is trained "
         "by flow matching; use exponential or constant");
  c_ = train.huber_c;
  scale_ = train.huber_scale;
}

double HuberSchedule::width(double time, double snr) const {
  if (schedule_ == "exponential") return scale_ * std::pow(c_, time);
  if (schedule_ == "snr") return (1 - c_) / std::pow(1 + 1 / std::sqrt(snr), 2) + c_;
  return scale_ * c_;
}

double HuberSchedule::factor(double width) const {
  return factor_ == Factor::twice_width ? 2 * width : factor_ == Factor::two ? 2 : 1;
}

std::string HuberSchedule::text() const {
  return on() ? fmt::format("{} {} c {} scale {}", loss_, schedule_, c_, scale_) : loss_;
}

}  // namespace lh
