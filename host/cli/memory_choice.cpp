#include "cli/memory_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/step_without_data.h"
#include "core/bytes.h"
#include "core/error.h"
#include "train/memory_text.h"

namespace lh {
namespace {

// From the one that changes nothing; fewer bits cost exactness.
constexpr const char* types[] = {"auto", "float8_e4m3", "nf4"};
constexpr double much_slower = 1.25;

// One type at one resolution; without a plan where none fits.
struct Tried {
  std::string dtype;
  std::optional<PlannedMemory> plan;
  std::string why_not;
};

Tried try_type(const Options& options, const Card& card, const std::string& dtype, int64_t resolution) {
  Options one = options;
  one.config.model.dtype = dtype;
  one.config.datasets.at(0).resolution = {resolution};
  StepWithoutData step(one, "card");
  const TrainPlan base = step.plan({});
  step.use({card.rates, published_rates});
  MemoryPlanner planner = step.planner(base);
  Tried tried{dtype, planner.best(usable_memory(card)), ""};
  if (!tried.plan) tried.why_not = does_not_fit(planner, step.config, step.model, usable_memory(card));
  return tried;
}

std::string line_of(const Tried& tried) {
  if (!tried.plan) return fmt::format("{} does not fit", tried.dtype);
  return fmt::format("{} {} and {:.2f} s a step", tried.dtype, size_text(tried.plan->memory.total()),
                     tried.plan->time.seconds);
}

}  // namespace

ChosenMemory choose_memory(const Options& options, const Card& card, const std::vector<int64_t>& resolutions) {
  std::string why_not;
  for (size_t i = resolutions.size(); i-- > 0;) {
    std::vector<Tried> all;
    double fastest = 0;
    for (const char* dtype : types) {
      all.push_back(try_type(options, card, dtype, resolutions[i]));
      why_not = all.back().why_not;
      if (!all.back().plan) continue;
      const double seconds = all.back().plan->time.seconds;
      fastest = fastest == 0 ? seconds : std::min(fastest, seconds);
    }
    for (const Tried& tried : all) {
      if (!tried.plan || tried.plan->time.seconds > much_slower * fastest) continue;
      std::vector<std::string> others;
      for (const Tried& other : all)
        if (other.dtype != tried.dtype) others.push_back(line_of(other));
      return {.dtype = tried.dtype,
              .resolution = resolutions[i],
              .memory = tried.plan->memory.total(),
              .seconds = tried.plan->time.seconds,
              .others = fmt::format("{}", fmt::join(others, ", "))};
    }
  }
  fail(Code::resource, "init: at {} x {} pixels, rank {}: {}", resolutions.front(), resolutions.front(),
       options.config.network.linear, why_not);
}

}  // namespace lh
