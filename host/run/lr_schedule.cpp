// With w warm-up steps of n, a step k < w has lr * k / w (so step 0 has 0; "constant" alone has no warm-up). From there
// p = (k - w) / (n - w) runs from 0 to 1 and beyond:
//   constant_with_warmup   1
//   linear                 1 - p, at least 0
//   cosine                 (1 + cos(2 pi c p)) / 2 with c = num_cycles, 0.5 unless set: one fall from 1 to 0
//   cosine_with_restarts   (1 + cos(pi (c p mod 1))) / 2 with c = 1 unless set; 0 from the end on
//   polynomial             (lr - lr_end) (1 - p)^power + lr_end; lr_end from the end on
//   step                   gamma^floor((k - w) / step_size)
//   rex                    (1 - p) / (1 - d + d (1 - p)) with d = rex_d; 0 from the end on (Chen et al. 2021 has d 0.5)
//   inverse_sqrt           sqrt(t / (k - w + t)) with t = timescale: the warm-up steps unless set, 10000 without them
// Over the last D steps, decay_steps, whatever the schedule says is multiplied by (n - k) / D, at least 0. Steps may be
// given as a ratio of n, rounded down.
#include "run/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "config/schedule_params.h"
#include "core/error.h"

namespace lh {
namespace {

class Schedule {
 public:
  explicit Schedule(const TrainSection& train)
      : train_(train),
        steps_(static_cast<double>(train.steps)),
        warmup_(steps_of_part(train, "warmup")),
        decay_(steps_of_part(train, "decay")) {}

  double at(double lr, double k) const {
    const double fall = decay_ > 0 ? std::clamp((steps_ - k) / decay_, 0.0, 1.0) : 1;
    return risen(lr, k) * fall;
  }

 private:
  double option(const char* name, double otherwise) const {
    const auto found = train_.lr_scheduler_params.find(name);
    return found == train_.lr_scheduler_params.end() ? otherwise : found->second;
  }

  double risen(double lr, double k) const {
    const std::string& schedule = train_.lr_scheduler;
    if (schedule == "constant") return lr;
    if (k < warmup_) return lr * (k / std::max(1.0, warmup_));
    const double after = k - warmup_, p = after / std::max(1.0, steps_ - warmup_), pi = std::numbers::pi;
    if (schedule == "constant_with_warmup") return lr;
    if (schedule == "linear") return lr * std::max(0.0, (steps_ - k) / std::max(1.0, steps_ - warmup_));
    if (schedule == "cosine") return lr * std::max(0.0, 0.5 * (1 + std::cos(pi * option("num_cycles", 0.5) * 2 * p)));
    if (schedule == "cosine_with_restarts") {
      if (p >= 1) return 0;
      return lr * std::max(0.0, 0.5 * (1 + std::cos(pi * std::fmod(option("num_cycles", 1) * p, 1.0))));
    }
    if (schedule == "polynomial") {
      const double lr_end = option("lr_end", 1e-7);
      if (k > steps_) return lr_end;
      return (lr - lr_end) * std::pow(1 - p, option("power", 1)) + lr_end;
    }
    if (schedule == "step") {
      const double size = std::max(1.0, option("step_size", std::max(1.0, std::floor(steps_ / 3))));
      return lr * std::pow(option("gamma", 0.1), std::floor(after / size));
    }
    if (schedule == "rex") {
      const double rest = std::max(0.0, 1 - p), d = option("rex_d", 0.5);
      return lr * (rest == 0 ? 0 : rest / (1 - d + d * rest));
    }
    if (schedule == "inverse_sqrt") {
      const double scale = std::max(1.0, option("timescale", warmup_ > 0 ? warmup_ : 10000));
      return lr * std::sqrt(scale / (after + scale));
    }
    fail(Code::config, "train.lr_scheduler: unknown schedule {}", schedule);
  }

  const TrainSection& train_;
  double steps_, warmup_, decay_;
};

}  // namespace

double learning_rate(const TrainSection& train, double lr, int64_t step) {
  return Schedule(train).at(lr, static_cast<double>(step));
}

std::vector<double> learning_rates(const TrainSection& train, const std::vector<double>& lr, int64_t step) {
  std::vector<double> rates;
  for (const double rate : lr) rates.push_back(learning_rate(train, rate, step));
  return rates;
}

}  // namespace lh
