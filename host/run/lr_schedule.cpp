// With w warm-up steps of n, a step k < w has lr * k / w (so step 0 has 0; "constant" alone has no warm-up). From there
// p = (k - w) / (n - w) runs from 0 to 1 and beyond:
//   constant_with_warmup   1
//   linear                 1 - p, at least 0
//   cosine                 (1 + cos(2 pi c p)) / 2 with c = num_cycles, 0.5 unless set: one fall from 1 to 0
//   cosine_with_restarts   (1 + cos(pi (c p mod 1))) / 2 with c = 1 unless set; 0 from the end on
//   polynomial             (lr - lr_end) (1 - p)^power + lr_end; lr_end from the end on
#include "run/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace lh {

namespace {

// `lr` is the rate that the schedule moves.
double scheduled(const TrainSection& train, double lr, int64_t step) {
  const auto option = [&](const char* name, double otherwise) {
    const auto found = train.lr_scheduler_params.find(name);
    return found == train.lr_scheduler_params.end() ? otherwise : found->second;
  };
  const std::string& schedule = train.lr_scheduler;
  if (schedule == "constant") return lr;

  const double k = static_cast<double>(step), n = static_cast<double>(train.steps), warmup = option("warmup_steps", 0);
  if (k < warmup) return lr * (k / std::max(1.0, warmup));
  if (schedule == "constant_with_warmup") return lr;

  const double p = (k - warmup) / std::max(1.0, n - warmup), pi = std::numbers::pi;
  if (schedule == "linear") return lr * std::max(0.0, (n - k) / std::max(1.0, n - warmup));
  if (schedule == "cosine") return lr * std::max(0.0, 0.5 * (1 + std::cos(pi * option("num_cycles", 0.5) * 2 * p)));
  if (schedule == "cosine_with_restarts") {
    if (p >= 1) return 0;
    return lr * std::max(0.0, 0.5 * (1 + std::cos(pi * std::fmod(option("num_cycles", 1) * p, 1.0))));
  }
  if (schedule == "polynomial") {
    const double lr_end = option("lr_end", 1e-7);
    if (k > n) return lr_end;
    return (lr - lr_end) * std::pow(1 - p, option("power", 1)) + lr_end;
  }
  fail(Code::config, "train.lr_scheduler: unknown schedule {}", schedule);
}

}  // namespace

LearningRates learning_rates(const TrainSection& train, int64_t step) {
  return {scheduled(train, train.lr, step), scheduled(train, train.text_encoder_lr.value_or(train.lr), step)};
}

}  // namespace lh
