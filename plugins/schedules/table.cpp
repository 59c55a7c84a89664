// A list of sigmas that somebody has measured, such as those of Align Your Steps (Sabour et al. 2024): for another
// number of steps log(sigma) is interpolated over the list, and the last one becomes 0, as the paper's authors and
// ComfyUI do.
#include <cmath>

#include "schedules.h"

namespace schedules {
namespace {

class Table : public lora_host::Schedule {
 public:
  explicit Table(const Options& options) {
    if (!options.has("sigmas"))
      throw Failure(LH_E_SETTING, "schedule 'table' needs the option sigmas, a falling list such as [14.6, 2.4, 0.03]");
    sigmas_ = options.reals("sigmas");
    if (sigmas_.size() < 2 || std::adjacent_find(sigmas_.begin(), sigmas_.end(), std::less_equal<>()) != sigmas_.end())
      throw Failure(LH_E_SETTING, "sigmas: expected at least two numbers, each smaller than the one before");
  }
  Levels levels(const Facts& facts) const override {
    const auto intervals = static_cast<double>(sigmas_.size() - 1);
    Numbers found;
    for (uint32_t i = 0; i < facts.steps; ++i) {
      const double place = i * intervals / static_cast<double>(facts.steps);
      const auto low = static_cast<size_t>(place);
      const double part = place - static_cast<double>(low);
      found.push_back(part == 0 ? sigmas_[low]
                                : std::exp((1 - part) * std::log(sigmas_[low]) + part * std::log(sigmas_[low + 1])));
    }
    return ended(std::move(found));
  }

 private:
  Numbers sigmas_;
};

constexpr lh_option options[] = {
    option::reals("sigmas", nullptr, 0, option::above(0), "Falling; the last stands for the end of the run."),
    option::end};

}  // namespace

constinit const lh_schedule table =
    lora_host::schedule<Table>({.id = "table", .objectives = all_models, .options = options});

}  // namespace schedules
