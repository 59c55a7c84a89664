// The same steps by each process for itself, all at the same time, and then together.
#include "cli/bench_together.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/bench_steps.h"
#include "cli/ranks.h"
#include "cli/step_without_data.h"
#include "config/dtype.h"
#include "core/bytes.h"
#include "train/collectives.h"

namespace lh {
namespace {

class Bench {
 public:
  Bench(const Options& options, World& world)
      : options_(options),
        world_(world),
        bare_(options, device_of(options.config.device, world), world),
        plan_(bare_.fitted()),
        collectives_(world, bare_.device, device_of(options.config.device, world)),
        weights_(bare_.device, bare_.model.checkpoint(), plan_.largest().graph,
                 options.input.empty() ? Weights::Source::file : Weights::Source::random, bare_.share(world.rank())),
        inputs_(step_inputs(bare_, plan_.largest().graph)) {
    if (!bare_.shares_base()) return;
    bare_.device.use(&collectives_);
    collectives_.share_weights(weights_.memory());
  }

  const StepWithoutData& bare() const { return bare_; }
  const TrainPlan& plan() const { return plan_; }
  const DeviceGroup& group() { return collectives_.group(); }
  int64_t peak() const { return bare_.device.peak(); }

  // One micro-batch a step, of this process alone or of each.
  Times time(bool together) {
    RunnerOptions runner_options{.accumulation = together ? world_.size() : 1,
                                 .collectives = together ? &collectives_ : nullptr,
                                 .in_order = bare_.config.train.deterministic,
                                 .travel = compute_dtype(bare_.config.train.reduce_dtype),
                                 .max_grad_norm = bare_.config.train.max_grad_norm,
                                 .loss_scaling = bare_.compute == DType::f16};
    StepRunner runner(bare_.device, plan_, weights_, runner_options);
    begin_training(runner, plan_, bare_, weights_, !options_.input.empty());
    const auto enqueue = steps_of(runner, plan_, bare_.config, inputs_);
    enqueue();
    StepResult result = runner.collect();
    world_.meet();
    const Times times = time_steps(runner, options_.repeats, enqueue, result);
    world_.meet();
    if (together) sums_ = runner.sum_seconds();
    return times;
  }
  double sums() const { return sums_; }  // a step's sums by themselves, in seconds

 private:
  const Options& options_;
  World& world_;
  StepWithoutData bare_;
  TrainPlan plan_;
  Collectives collectives_;
  Weights weights_;
  StepInputs inputs_;
  double sums_ = 0;
};

std::string text_of(const Times& t) {
  return fmt::format("{:.2f} ms median ({:.2f} to {:.2f}, {} steps)", 1e3 * t.median, 1e3 * t.least, 1e3 * t.most,
                     t.count);
}

// A step of devices that do as many steps a second as these do, each.
double mean_of_rates(const std::vector<double>& seconds) {
  double rates = 0;
  for (const double s : seconds) rates += 1 / s;
  return static_cast<double>(seconds.size()) / rates;
}

}  // namespace

int bench_together(const Options& options, World& world) {
  Bench bench(options, world);
  const bool first = world.first(), shared = bench.bare().shares_base();
  const auto say = [&](const std::string& row, const std::string& text) {
    if (first) fmt::print("{:<22} {}\n", row, text);
  };
  const StepWithoutData& bare = bench.bare();
  say("device", bare.device.info().name);
  say("processes", fmt::format("{}, one micro-batch each; memory is passed by {}; sums {}", world.size(),
                               bench.group().library(), bare.config.train.deterministic ? "in order" : "in any order"));
  say("model", fmt::format("{} {}, {} pixels, batch {}, {}", bare.model.recipe().family, bare.model.recipe().variant,
                           text_of(bare.shape.bucket), bare.shape.batch, dtype_name(bare.compute)));
  const MemoryReport& memory = bench.plan().memory;
  say("plan",
      fmt::format("{:.1f} MiB each: weights {:.1f}{}, LoRA and optimizer {:.1f}, activations {:.1f}, other {:.1f}",
                  mib(memory.total()), mib(memory.weights), shared ? " (a part)" : "", mib(memory.adapters),
                  mib(memory.activations), mib(memory.workspace + memory.small)));
  double alone = 0;  // seconds
  if (!shared) {     // who has a part of the weights can do nothing alone
    const Times own = bench.time(false);
    const std::vector<double> all = gather_values(world, own.median);
    alone = mean_of_rates(all);
    const auto [fastest, slowest] = std::ranges::minmax(all);
    say("alone", fmt::format("{}, each for itself at the same time; medians of all {:.2f} to {:.2f} ms, {:.2f} by the "
                             "sum of their rates",
                             text_of(own), 1e3 * fastest, 1e3 * slowest, 1e3 * alone));
  }
  const Times together = bench.time(true);
  say("together", text_of(together));
  const DType travel = compute_dtype(bare.config.train.reduce_dtype);
  const int64_t gradients = bench.plan().adapters->whole().shape.numel() * dtype_size(travel);
  say("sums", fmt::format("{:.1f} MiB of gradients a process, {}: {:.2f} ms by themselves", mib(gradients),
                          dtype_name(travel), 1e3 * bench.sums()));
  if (alone > 0) {
    const double more = together.median - alone;
    say("scaling", fmt::format("{:.3f}: {:.2f} ms of a step are not hidden, {:.1f}% of it", alone / together.median,
                               1e3 * more, 100 * more / together.median));
    const double again = mean_of_rates(gather_values(world, bench.time(false).median));
    say("alone again", fmt::format("{:.2f} ms, now that the ways between the devices are open", 1e3 * again));
  }
  say("memory", fmt::format("{:.1f} MiB planned, {:.1f} MiB taken at most", mib(memory.total()), mib(bench.peak())));
  world.finish();
  return 0;
}

}  // namespace lh
