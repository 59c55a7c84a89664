#include "cli/memory_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/step_without_data.h"
#include "core/bytes.h"
#include "core/error.h"
#include "passes/products.h"
#include "train/memory_text.h"

namespace lh {
namespace {

// A way to keep the base and to multiply with it.
struct Kind {
  const char *dtype, *products;
};
// From the one that changes nothing; fewer bits cost exactness.
constexpr Kind whole_products[] = {{"auto", "full"}, {"float8_e4m3", "full"}, {"nf4", "full"}};
// From the more exact one.
constexpr Kind short_products[] = {{"float8_e4m3", "float8"}, {"int8", "int8"}};
constexpr double much_slower = 1.25, much_faster = 1.5;

// One kind at one resolution; without a plan where none fits.
struct Tried {
  Kind kind;
  std::optional<PlannedMemory> plan;
  std::string why_not;
  double seconds() const { return plan->time.seconds; }
};

Tried try_kind(const Options& options, const Card& card, const Kind& kind, int64_t resolution) {
  Options one = options;
  one.config.model.dtype = kind.dtype;
  one.config.model.products = kind.products;
  one.config.datasets.at(0).resolution = {resolution};
  StepWithoutData step(one, "card");
  const TrainPlan base = step.plan({});
  step.use({card.rates, published_rates});
  MemoryPlanner planner = step.planner(base);
  Tried tried{kind, planner.best(usable_memory(card)), ""};
  if (!tried.plan) tried.why_not = does_not_fit(planner, step.config, step.model, usable_memory(card));
  return tried;
}

std::string line_of(const Tried& tried) {
  if (!tried.plan) return fmt::format("{} does not fit", tried.kind.dtype);
  return fmt::format("{} {} and {:.2f} s a step", tried.kind.dtype, size_text(tried.plan->memory.total()),
                     tried.seconds());
}

// The first of them that fits and that the card is known to have.
std::optional<Tried> with_short_products(const Options& options, const std::function<Card(lk_products)>& card,
                                         int64_t resolution) {
  for (const Kind& kind : short_products) {
    const Card has = card(products_named(kind.products));
    if (!has.known || has.rates.eight_bit == 0) continue;
    Tried tried = try_kind(options, has, kind, resolution);
    if (tried.plan) return tried;
  }
  return std::nullopt;
}

ChosenMemory chosen(const Tried& tried, int64_t resolution, const std::vector<Tried>& all) {
  std::vector<std::string> others;
  for (const Tried& other : all)
    if (other.kind.dtype != std::string_view(tried.kind.dtype)) others.push_back(line_of(other));
  return {.dtype = tried.kind.dtype,
          .products = tried.kind.products,
          .resolution = resolution,
          .memory = tried.plan->memory.total(),
          .seconds = tried.seconds(),
          .others = fmt::format("{}", fmt::join(others, ", ")),
          .why_products = {}};
}

}  // namespace

ChosenMemory choose_memory(const Options& options, const std::function<Card(lk_products)>& card,
                           const std::vector<int64_t>& resolutions) {
  const Card plain = card(LK_PRODUCTS_WIDE);
  std::string why_not;
  for (size_t i = resolutions.size(); i-- > 0;) {
    std::vector<Tried> all;
    double fastest = 0;
    for (const Kind& kind : whole_products) {
      all.push_back(try_kind(options, plain, kind, resolutions[i]));
      why_not = all.back().why_not;
      if (!all.back().plan) continue;
      fastest = fastest == 0 ? all.back().seconds() : std::min(fastest, all.back().seconds());
    }
    const auto nearest = std::ranges::find_if(
        all, [&](const Tried& tried) { return tried.plan && tried.seconds() <= much_slower * fastest; });
    if (nearest == all.end()) continue;
    const std::optional<Tried> quick = with_short_products(options, card, resolutions[i]);
    if (!quick) return chosen(*nearest, resolutions[i], all);
    const bool worth_it = quick->seconds() * much_faster <= nearest->seconds();
    ChosenMemory found = chosen(worth_it ? *quick : *nearest, resolutions[i], all);
    found.why_products = worth_it
                             ? fmt::format("{:.2f} s a step instead of {:.2f} with full, which is a little more exact",
                                           quick->seconds(), nearest->seconds())
                             : fmt::format("{} with dtype {} would take {:.2f} s a step, and is a little less exact",
                                           quick->kind.products, quick->kind.dtype, quick->seconds());
    return found;
  }
  fail(Code::resource, "init: at {} x {} pixels, rank {}: {}", resolutions.front(), resolutions.front(),
       options.config.network.linear, why_not);
}

}  // namespace lh
