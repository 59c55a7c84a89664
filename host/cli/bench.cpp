// lora-host bench: whole training steps without a dataset, with the weights of a checkpoint or with made-up ones.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "cli/bench_choices.h"
#include "cli/bench_steps.h"
#include "cli/bench_together.h"
#include "cli/commands.h"
#include "cli/launcher.h"
#include "cli/ranks.h"
#include "cli/step_without_data.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/error.h"
#include "lora_kernels_link.h"
#include "run/flops.h"
#include "run/predict.h"
#include "run/recording.h"
#include "run/state_seconds.h"
#include "train/prepare.h"
#include "train/step_runner.h"

namespace lh {
namespace {

// The optimizer's part of a step alone, in seconds: the least of several.
double update_seconds(Device& device, Update& update) {
  Recording recorded(device, [&] { update.run(); });
  const Event start(device), end(device);
  double best = 1e30;
  for (int i = 0; i < 8; ++i) {
    start.record(LK_COMPUTE);
    recorded.launch();
    end.record(LK_COMPUTE);
    device.synchronize();
    best = std::min(best, end.seconds_since(start));
  }
  return best;
}

int64_t state_bytes(const Update& update) {
  int64_t bytes = 0;
  for (const StoredState& state : update.states()) bytes += state.desc.bytes();
  return bytes;
}

// The rate that copies are held to, which the plan is then made by; 0: none was asked for.
double held_link(StepWithoutData& bare, const std::string& asked) {
  if (asked.empty()) return 0;
  const double here = bare.rates().rates.link;
  bare.use(with_link(bare.rates(), asked));
  const double link = bare.rates().rates.link;
  if (link < LK_LINK_SLOWEST) fail(Code::config, "--link: expected 0.001 GB/s or more, found {}", asked);
  if (!bare.device.is_cpu() && link > here)
    fail(Code::config,
         "--link: expected no more than the {:.1f} GB/s that this machine's link reaches, found {}: copies can be held "
         "back, not hurried. lora-host plan --link predicts a faster one",
         here * 1e-9, asked);
  return link;
}

// By how much a prediction is off, in percent.
std::string off(double predicted, double measured) {
  const double tenths = std::round(1000 * (predicted / measured - 1));
  return fmt::format("{:+.1f}%", tenths / 10 + 0.0);  // no -0.0
}

int bench_alone(const Options& options) {
  const double launched = seconds_now();
  const bool hollow = !options.input.empty();
  StepWithoutData bare(options, options.config.device);
  Device& device = bare.device;
  const lk_device_info before = device.info();
  const Config& config = bare.config;
  const Model& model = bare.model;
  const DType compute = bare.compute;
  const double product = [&] {
    Device apart(config.device, config.train.deterministic);  // what is measured here is not the step's memory
    const int64_t side = !apart.is_cpu() ? 8192 : apart.threads() > 4 ? 2048 : 1024;  // which keeps all of it busy
    return product_rate(apart, compute, side) * 1e-12;
  }();
  const double link = held_link(bare, options.link);
  TrainPlan plan = bare.fitted();
  const StepShape& shape = bare.shape;
  const TrainGraph& train = plan.largest();
  const double work = flops(train.graph);
  const PredictedTime predicted = predict(train.graph, plan.steps.at(plan.largest_shape())->plan(), bare.rates().rates);

  fmt::print("device                 {}{}\n", before.name,
             device.is_cpu() ? fmt::format(", {} threads", device.threads()) : fmt::format(", {}", before.libraries));
  fmt::print("model                  {} {}, {} pixels, batch {}, {} text tokens, {}\n", model.recipe().family,
             model.recipe().variant, text_of(shape.bucket), shape.batch,
             shape.lengths.empty() ? 0 : shape.lengths.begin()->second, dtype_name(compute));
  fmt::print("network                {} of rank {} on {} modules, {} parameters; {}\n", config.network.type,
             config.network.linear, train.modules.size(), plan.adapters->parameter_count(),
             plan.optimizer->rules().base().id());
  fmt::print(
      "plan                   {:.1f} MiB: weights {:.1f}, LoRA and optimizer {:.1f}, activations {:.1f} ({:.1f} "
      "made again), workspace {:.1f}, other {:.1f}; {:.1f} of weights and {:.1f} of activations in "
      "host memory\n",
      mib(plan.memory.total()), mib(plan.memory.weights), mib(plan.memory.adapters), mib(plan.memory.activations),
      mib(total(train.activations.again)), mib(plan.memory.workspace), mib(plan.memory.small),
      mib(plan.memory.streamed), mib(plan.memory.offloaded));
  if (plan.memory.states > 0)
    fmt::print(
        "states                 {:.1f} MiB in host memory, for which an update is predicted to take {:.2f} ms longer\n",
        mib(plan.memory.states), 1e3 * state_seconds(plan.optimizer->plan(), bare.rates().rates));
  fmt::print("prediction             {:.2f} ms without the update, {:.1f} of them waiting for copies; {}\n",
             1e3 * predicted.seconds, 1e3 * predicted.waiting, rates_text(bare.rates()));
  const double planned = seconds_now();
  const Weights weights(device, model.checkpoint(), train.graph,
                        hollow ? Weights::Source::random : Weights::Source::file);
  device.synchronize();
  const double loaded = seconds_now();
  device.check(lk_set_link_rate(device.context(), link), "--link");
  StepRunner runner(device, plan, weights,
                    {.max_grad_norm = config.train.max_grad_norm, .loss_scaling = compute == DType::f16});
  begin_training(runner, plan, bare, weights, hollow);
  const StepInputs inputs = step_inputs(bare, train.graph);
  const auto run_step = steps_of(runner, plan, config, inputs);
  run_step();
  StepResult result = runner.collect();
  fmt::print("start                  {:.1f} s: plan {:.1f}, weights {:.1f}, first step {:.1f}\n",
             seconds_now() - launched, planned - launched, loaded - planned, seconds_now() - loaded);

  const Times t = time_steps(runner, options.repeats, run_step, result);
  fmt::print("step                   {:.2f} ms median ({:.2f} to {:.2f}, {} steps), {:.3f} TFLOP, loss {:.4f}\n",
             1e3 * t.median, 1e3 * t.least, 1e3 * t.most, t.count, work * 1e-12, result.loss);
  const double update = update_seconds(device, runner.update());
  fmt::print("update                 {:.3f} ms, {:.1f} MiB of states, {:.2f} bytes a parameter\n", 1e3 * update,
             mib(state_bytes(runner.update())),
             static_cast<double>(state_bytes(runner.update())) / static_cast<double>(plan.adapters->parameter_count()));
  const int64_t peak = device.peak(), used = before.memory_free - device.info().memory_free;
  fmt::print("rate                   {:.3f} TFLOP/s, {:.0f}% of a large matrix product's {:.3f}\n",
             work / t.median * 1e-12, 100 * work / t.median * 1e-12 / product, product);
  fmt::print("memory                 {:.1f} MiB planned, {:.1f} MiB taken at most", mib(plan.memory.total()),
             mib(peak));
  if (!device.is_cpu()) fmt::print(", {:.1f} MiB with what the libraries load", mib(used));
  fmt::print("\n");
  const double measured = t.median - update;
  fmt::print("predicted              the step {}, its memory {}\n", off(predicted.seconds, measured),
             off(mib(plan.memory.total()), mib(peak)));
  if (!config.memory.budget.empty())  // columns of docs/memory.md
    fmt::print(
        "row                    | {} | {:.1f} GB/s | {} | {} | {} | {:.1f} ms | {:.1f} ms | {} | {} | {} | {} |\n",
        size_text(memory_limit(config, device)), bare.rates().rates.link * 1e-9,
        size_text(total(train.activations.again)), size_text(plan.memory.offloaded), size_text(plan.memory.streamed),
        1e3 * predicted.seconds, 1e3 * measured, off(predicted.seconds, measured), size_text(plan.memory.total()),
        size_text(peak), off(mib(plan.memory.total()), mib(peak)));
  Program& program = plan.steps.begin()->second->program();
  const TimedChoices timed(device);
  if (options.tune) print_choices(device, [&] { program.run(); });
  if (!options.times) return 0;
  program.time_ops();  // places in the queue are made at first use
  for (const auto& [name, time] : program.time_ops())
    fmt::print("op                     {:<28} {:>6} calls {:>10.3f} ms\n", name, time.calls, 1e3 * time.seconds);
  return 0;
}

// What --tune and --times show is of a step of one process.
void refuse_rows_of_one(const Options& options) {
  if (options.tune || options.times)
    fail(Code::config, "bench: {} shows a step of one process: run it without --processes or mpirun",
         options.tune ? "--tune" : "--times");
}

}  // namespace

int run_bench(const Options& options) {
  if (options.processes > 0) {
    refuse_rows_of_one(options);
    return run_launcher(options);
  }
  return run_together([&](World& world) {
    if (world.alone_here()) return bench_alone(options);
    refuse_rows_of_one(options);
    return bench_together(options, world);
  });
}

}  // namespace lh
