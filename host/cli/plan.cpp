// lora-host plan: what a run would take of memory and time under several budgets, on this device or on another card.
// Nothing is taken and nothing runs.
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/step_without_data.h"
#include "core/bytes.h"
#include "core/error.h"
#include "data/further_images.h"
#include "encode/try_model.h"
#include "passes/products.h"
#include "run/card.h"
#include "train/memory_text.h"
#include "train/prepare.h"

namespace lh {
namespace {

// Those that are asked for.
std::vector<int64_t> budgets_of(const Options& options) {
  std::vector<int64_t> budgets;
  for (const std::string& text : options.budgets) {
    const std::optional<int64_t> size = size_of(text);
    if (!size) fail(Code::config, "--budget: expected sizes such as 24,16,12 (GiB) or 11.5GiB, found {}", text);
    budgets.push_back(*size);
  }
  return budgets;
}

// A line of advice where the base could be kept smaller: nothing is done about it unless the user says so.
std::string smaller_base(const Config& config) {
  if (config.model.dtype != "auto") return "";
  return "model.dtype is auto: with float8_e4m3 the weights of adapted layers take half the memory of bf16, and half "
         "the time to stream (lora-host plan --model-dtype float8_e4m3 ... shows it; --products float8 with it where "
         "the GPU multiplies in fp8)\n";
}

void show(MemoryPlanner& planner, const Config& config, const Options& options, const std::string& on, int64_t usual,
          const KnownRates& rates) {
  fmt::print("rates      {}: {}\n", on, rates_text(rates));
  fmt::print("step       {} pixels, batch {}, {} blocks; times are predicted, without the optimizer\n",
             text_of(planner.shape().bucket), planner.shape().batch, planner.blocks());
  const std::vector<int64_t> budgets = budgets_of(options);
  fmt::print("{}{}", memory_table(planner, budgets.empty() ? budgets_around(usual) : budgets), smaller_base(config));
}

int plan(const Options& options) {
  Config config = options.config;
  (void)budgets_of(options);  // before the model is looked at
  const bool gpu_here = config.device != "cpu" && lk_backend_available(LK_CUDA) != 0;
  if (config.device != "cpu" && options.card.empty() && !gpu_here)
    fail(Code::config,
         "plan: this lora-host has no CUDA backend (lora-host-cuda). Name the card that the plan is for: --card \"rtx "
         "4070\" or --card \"12 GB, 58 TFLOP/s, 504 GB/s\"");
  std::optional<Card> card;
  const lk_products products = products_named(config.model.products);
  if (!options.card.empty()) card = card_of(options.card, products);
  const auto rates_on = [&](Device& device, DType compute) {
    const KnownRates known = card ? KnownRates{card->rates, published_rates}
                                  : known_rates(device, compute, memory_limit(config, device), products);
    return with_link(known, options.link);
  };
  const auto usual = [&](const Device& device) {
    if (!config.memory.budget.empty()) return *size_of(config.memory.budget);
    return card ? usable_memory(*card) : memory_limit(config, device);
  };
  const std::string device_name = card ? "card" : config.device;
  const bool data = options.input.empty() && !config.datasets.empty() && !config.datasets.front().folder_path.empty();
  if (!data) {
    if (config.datasets.empty()) config.datasets.resize(1);
    Options bare_options = options;
    bare_options.config = config;
    StepWithoutData bare(bare_options, device_name);
    const TrainPlan base = bare.plan({});
    const KnownRates rates = rates_on(bare.device, bare.compute);
    bare.use(rates);
    MemoryPlanner planner = bare.planner(base);
    show(planner, bare.config, options, card ? card->name : bare.device.info().name, usual(bare.device), rates);
    return 0;
  }
  try_model(*options.registry, config.model, config.plugin, compute_dtype(config.train.dtype), keys_of_images(config));
  const std::string budget = config.memory.budget;
  config.device = device_name;
  if (card) config.memory.budget = "1024TiB";  // the plan without a limit is where all others begin
  Prepared prepared(*options.registry, config);
  config.memory.budget = budget;
  const KnownRates rates = rates_on(prepared.device, prepared.compute);
  show(prepared.memory_planner(rates), config, options, card ? card->name : prepared.device.info().name,
       usual(prepared.device), rates);
  return 0;
}

}  // namespace

int run_plan(const Options& options) {
  try {
    return plan(options);
  } catch (const Error& error) {
    const bool no_gpu =
        error.code() == Code::no_driver || error.code() == Code::old_driver || error.code() == Code::library;
    if (!no_gpu || !options.card.empty()) throw;
    throw Error(error.code(),
                fmt::format("{}. For a card that is not here name it: --card \"rtx 4070\"", error.what()));
  }
}

}  // namespace lh
