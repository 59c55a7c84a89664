// Records micro-batches and the update, keeps a few in flight, and reads their results back.
#include "train/step_runner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <sstream>

#include "core/hash.h"
#include "core/signals.h"
#include "ops/ops.h"
#include "run/clip.h"

namespace lh {
namespace {

lk_tensor scalar(const DeviceMemory& memory, Scalar which, int64_t count = 1) {
  return kernel_tensor({DType::f32, {count}}, memory.data() + which);
}

}  // namespace

StepRunner::StepRunner(Device& device, TrainPlan& plan, const Weights& weights, const RunnerOptions& options)
    : device_(device),
      plan_(plan),
      options_(options),
      arena_(device, plan.memory.activations, "activations"),
      workspace_(device, plan.memory.workspace),
      feed_(device, plan.message_bytes()),
      scalars_(device, SCALARS, "scalars"),
      results_(device, most_in_flight * SCALARS) {
  plan.adapters->allocate(device);
  for (int64_t i = 0; i < most_in_flight; ++i) landed_.push_back(std::make_unique<Event>(device));
  if (plan.memory.offloaded > 0) host_ = StagingMemory(device, plan.memory.offloaded);
  const StepMemory memory{arena_.data(), feed_.device() + plan.rates_bytes(), scalars_.data() + LOSS_SCALE,
                          host_.data()};
  for (auto& [bucket, step] : plan.steps) step->bind(device, memory, weights, *plan.adapters);
  use(plan.optimizer);
  if (plan.norm_limit) plan.norm_limit->bind(device, *plan.adapters, arena_.data());
  set_state(0, {1, 0});
  set_averaged(0);
  const float trusted = 0;
  scalars_.upload(DISTRUST, &trusted, sizeof trusted);
  if (options.collectives != nullptr) join_others();
}

// Gradients travel in the order in which the backward pass of the largest step of the first process ends them.
void StepRunner::join_others() {
  const Adapters& adapters = *plan_.adapters;
  const size_t count = adapters.tensors().size();
  const std::vector<size_t> nodes = plan_.steps.at(plan_.largest_shape())->gradient_nodes(adapters);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t t) { return nodes[t]; });
  std::istringstream agreed(options_.collectives->world().of_first(fmt::format("{}", fmt::join(order, " "))));
  for (size_t& t : order) agreed >> t;
  // With what lies behind each of them, which is zero in every section.
  std::vector<int64_t> begins;
  for (const AdapterTensor& tensor : adapters.tensors()) begins.push_back(tensor.offset);
  begins.push_back(adapters.whole().shape.numel());
  std::ranges::sort(begins);
  std::vector<GradientRange> tensors;
  for (const size_t t : order) {
    const int64_t begin = adapters.tensors().at(t).offset;
    tensors.push_back({begin, *std::ranges::upper_bound(begins, begin) - begin});
  }
  const AdapterTensor all = adapters.whole();
  const auto at = [&](const char* section) { return static_cast<std::byte*>(adapters.at(section, all)); };
  sum_ = std::make_unique<GradientSum>(*options_.collectives, device_,
                                       StepGradients{.gradient = at("g"),
                                                     .total = at("total"),
                                                     .loss = scalars_.data() + OWN_LOSS,
                                                     .loss_total = scalars_.data() + LOSS},
                                       tensors, options_.in_order, options_.travel);
  for (const auto& [shape, step] : plan_.steps) {
    const std::vector<size_t> made = step->gradient_nodes(adapters);
    std::vector<size_t>& there = gradients_there_[step.get()];
    there.resize(step->train_graph().graph.nodes.size());
    size_t last = 0;
    for (size_t i = 0; i < count; ++i) {
      last = std::max(last, made[order[i]]);
      there[last] = i + 1;
    }
  }
  if (device_.shared_weights() != nullptr) warm_together();
}

// Weights that come from all ranks come in one order in all steps, whichever of them a rank is at; so steps run for the
// first time, which is not recorded, at the same time everywhere.
void StepRunner::warm_together() {
  std::optional<std::string> order;
  for (const auto& [shape, step] : plan_.steps) {
    const Graph& graph = step->train_graph().graph;
    std::string text;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      const bool shared = node.op == &fetch_op || node.op == &offer_op;
      if (shared && graph.info(node.inputs[0]).kind == ValueKind::param) text += graph.info(node.inputs[0]).name + "\n";
      if (const size_t tensors = gradients_there_.at(step.get())[n]; tensors > 0) text += fmt::format("{}\n", tensors);
    }
    if (order && *order != text)
      fail(Code::config,
           "memory.shard_base: batches of {} need the weights in another order than those of other sizes, and "
           "processes may be at different ones. Train at one resolution, or set memory.shard_base: false",
           text_of(shape.bucket));
    order = text;
  }
  require_same(options_.collectives->world(),
               {{"order of weights in a step", sha256_hex(std::as_bytes(std::span(*order)))}});
  if (device_.is_cpu()) return;
  std::memset(feed_.host(), 0, static_cast<size_t>(plan_.message_bytes()));
  feed_.send(plan_.message_bytes());
  feed_.deliver();
  const TimedChoices timed(device_);
  for (const auto& [shape, step] : plan_.steps) {
    step->program().run();
    warm_.insert(step.get());
  }
  device_.synchronize();
}

void StepRunner::use(std::shared_ptr<const OptimizerSetup> setup) {
  recordings_.clear();  // the last micro-batch of a step has the update in it
  update_.reset();
  Adapters& adapters = *plan_.adapters;
  if (setup->plan().evaluates()) adapters.add_section("evaluation");
  const AdapterTensor all = adapters.whole();
  const auto section = [&](const std::string& name) { return static_cast<std::byte*>(adapters.at(name, all)); };
  UpdateMemory memory{.p = section("p"),
                      .g = section(gradients()),
                      .evaluation = section(adapters.evaluated()),
                      .lr = {},
                      .step = scalars_.data() + STEP,
                      .arena = arena_.data()};
  for (size_t group = 0; group < setup->plan().groups().size(); ++group)
    memory.lr.push_back(feed_.device() + static_cast<int64_t>(group) * rate_spacing);
  update_ = std::make_unique<Update>(device_, setup->plan(), memory);
  plan_.optimizer = std::move(setup);
  if (plan_.ema)
    plan_.ema->bind(device_, {.weights = section(averaged()),
                              .average = section(adapters.shown()),
                              .count = scalars_.data() + AVERAGED,
                              .arena = arena_.data()});
}

void StepRunner::initialise() {
  update_->initialise();
  start_average();
}

void StepRunner::start_average() {
  if (!plan_.ema) return;
  if (update_->plan().evaluates()) update_->evaluate();
  plan_.ema->start();
  set_averaged(0);
}

// The section that is averaged: what this optimizer would have saved.
const char* StepRunner::averaged() const { return plan_.optimizer->plan().evaluates() ? "evaluation" : "p"; }

void StepRunner::refresh_shown() {
  // The average is brought up to date by every step.
  if (!plan_.ema && plan_.adapters->has("evaluation")) update_->evaluate();
}

void StepRunner::set_state(int64_t updates, const std::array<float, 2>& loss_scale) {
  const std::array<float, 2> unscaled{1, 0};
  scalars_.upload(LOSS_SCALE, (options_.loss_scaling ? loss_scale : unscaled).data(), 8);
  const auto count = static_cast<float>(updates);
  scalars_.upload(STEP, &count, 4);
}

void StepRunner::set_averaged(int64_t updates) {
  const auto count = static_cast<float>(updates);
  scalars_.upload(AVERAGED, &count, 4);
}

// The section that the update reads.
const char* StepRunner::gradients() const { return options_.accumulation > 1 || sum_ ? "total" : "g"; }

// One micro-batch: loss and gradients, added to those of the earlier ones unless all processes add up theirs.
void StepRunner::forward_backward(TrainStep& step, bool onto) {
  const float share = sum_ ? 1.0f : 1.0f / static_cast<float>(options_.accumulation);
  step.clear_absent(device_);
  if (sum_ && options_.collectives->within_step()) {
    const std::vector<size_t>& there = gradients_there_.at(&step);
    const Node* const first = step.program().graph().nodes.data();
    step.program().run([&](const Node& node, std::span<const lk_tensor>) {
      if (const size_t tensors = there[static_cast<size_t>(&node - first)]; tensors > 0) sum_->there(tensors);
    });
  } else {
    step.program().run();
  }
  const lk_accumulate_params loss{.x = step.program().tensor(step.train_graph().graph.outputs.at("loss")),
                                  .total = scalar(scalars_, sum_ ? OWN_LOSS : LOSS),
                                  .alpha = share,
                                  .accumulate = onto};
  device_.check(lk_accumulate(device_.context(), &loss), "loss");
  if (options_.accumulation == 1 || sum_) return;
  const AdapterTensor all = plan_.adapters->whole();
  const lk_accumulate_params params{.x = kernel_tensor({DType::f32, all.shape}, plan_.adapters->at("g", all)),
                                    .total = kernel_tensor({DType::f32, all.shape}, plan_.adapters->at("total", all)),
                                    .alpha = share,
                                    .accumulate = onto};
  device_.check(lk_accumulate(device_.context(), &params), "gradient accumulation");
}

// A gradient that is not finite changes nothing but the loss scale.
void StepRunner::clip_and_update() {
  const WholeChange whole;
  lk_context* context = device_.context();
  const AdapterTensor trained = plan_.adapters->whole();
  const lk_tensor norm = scalar(scalars_, NORM), counts = scalar(scalars_, STEP, 2);
  clip_gradients(device_, kernel_tensor({DType::f32, trained.shape}, plan_.adapters->at(gradients(), trained)),
                 options_.max_grad_norm, scalar(scalars_, LOSS_SCALE), norm);
  if (sum_) {
    device_.check(
        lk_copy_async(context, LK_COMPUTE, scalars_.data() + DISTRUST, options_.collectives->trust(), sizeof(float)),
        "trust in other processes");
    const lk_accumulate_params distrust{.x = scalar(scalars_, DISTRUST), .total = norm, .alpha = 1, .accumulate = true};
    device_.check(lk_accumulate(context, &distrust), "trust in other processes");
  }
  const auto when_finite = [&](const std::function<void()>& work) {
    device_.check(lk_if_finite_begin(context, &norm), "condition");
    work();
    device_.check(lk_if_finite_end(context), "condition");
  };
  const auto count = [&] {
    const lk_unary_params next{.kind = LK_AFFINE, .a = 1, .b = 1, .x = counts, .y = counts};
    device_.check(lk_unary(context, &next), "step counters");
  };
  // Copies of other queues are no part of a condition, so that states from host memory travel between several.
  const bool together = update_->plan().place() == StatePlace::device;
  const Update::Part part = together ? Update::Part(Update::always) : when_finite;
  const Update::Part all = together ? when_finite : Update::Part(Update::always);
  all([&] {
    part(count);
    update_->run(part);
    if (plan_.norm_limit) part([&] { plan_.norm_limit->run(); });
    if (!plan_.ema) return;
    if (update_->plan().evaluates()) update_->evaluate(part);
    part([&] { plan_.ema->run(); });
  });
  if (!options_.loss_scaling) return;
  const lk_loss_scale_update_params update{.norm = norm,
                                           .state = scalar(scalars_, LOSS_SCALE, 2),
                                           .growth = 2,
                                           .backoff = 0.5f,
                                           .largest = 16777216,
                                           .growth_interval = 2000};
  device_.check(lk_loss_scale_update(context, &update), "loss scaling");
}

// A micro-batch of one shape as one piece of work; the last one of a step with the update.
Recording& StepRunner::recording(const Work& work) {
  std::unique_ptr<Recording>& found = recordings_[work];
  if (!found) found = std::make_unique<Recording>(device_, [this, what = work] { this->work(what); });
  return *found;
}

void StepRunner::work(const Work& work) {
  if (work.round) sum_->begin(*work.round);
  if (work.step != nullptr) forward_backward(*work.step, work.onto);
  if (work.round) sum_->end();
  if (work.update) clip_and_update();
}

// Learning rates, and the inputs of a micro-batch where there is one, to the device.
void StepRunner::send(const std::vector<double>& lr, const MicroBatch& batch) {
  std::byte* message = feed_.host();
  for (size_t group = 0; group < lr.size(); ++group) {
    const auto rate = static_cast<float>(lr[group]);
    std::memcpy(message + static_cast<int64_t>(group) * rate_spacing, &rate, sizeof rate);
  }
  int64_t bytes = plan_.rates_bytes();
  if (batch.step != nullptr) {
    batch.step->write(batch.inputs, message + bytes);
    bytes += batch.step->input_bytes();
  }
  feed_.send(bytes);
  feed_.deliver();
  if (batch.step != nullptr && !device_.is_cpu() && warm_.insert(batch.step).second) batch.step->program().run();
}

// Micro-batch number i is that of rank i modulo their number, so that adding up round by round in the order of ranks is
// adding up the micro-batches one after another.
MicroBatch StepRunner::enqueue_together(const std::vector<double>& lr,
                                        const std::function<MicroBatch(int64_t micro)>& next) {
  Collectives& collectives = *options_.collectives;
  const int64_t ranks = collectives.world().size(), rank = collectives.world().rank(), count = options_.accumulation;
  MicroBatch batch;
  for (int64_t done = 0; done < count; done += ranks) {
    const SumRound round{.ranks = std::min(ranks, count - done),
                         .share = 1.0f / static_cast<float>(count),
                         .first = done == 0,
                         .last = done + ranks >= count};
    const bool computes = rank < round.ranks;
    MicroBatch here;
    collectives.come(computes);
    if (computes) here = next(done + rank);
    if (computes || round.first) send(lr, here);
    if (collectives.within_step()) {
      // What is waited for is recorded by itself: as one recording a step took longer (docs/scale.md).
      if (computes && !sum_->beside())
        recording({.step = here.step, .onto = false, .round = {}, .update = false}).launch();
      TrainStep* const beside = sum_->beside() ? here.step : nullptr;
      recording({.step = beside, .onto = false, .round = round, .update = round.last}).launch();
    } else {
      if (computes) recording({.step = here.step, .onto = false, .round = {}, .update = false}).launch();
      sum_->begin(round);
      sum_->end();
      if (round.last) recording({.step = nullptr, .onto = false, .round = {}, .update = true}).launch();
    }
    if (computes) batch = std::move(here);
  }
  return batch;
}

void StepRunner::enqueue(const std::vector<double>& lr, const std::function<MicroBatch(int64_t micro)>& next) {
  const TimedChoices timed(device_);
  MicroBatch batch;
  if (sum_) {
    batch = enqueue_together(lr, next);
  } else {
    for (int64_t micro = 0; micro < options_.accumulation; ++micro) {
      batch = next(micro);
      send(lr, batch);
      recording({.step = batch.step, .onto = micro > 0, .round = {}, .update = micro + 1 == options_.accumulation})
          .launch();
    }
  }
  const int64_t slot = launched_++ % most_in_flight;
  device_.check(
      lk_copy_async(device_.context(), LK_COMPUTE, results_.data() + slot * SCALARS, scalars_.data(), SCALARS),
      "results of a step");
  landed_[static_cast<size_t>(slot)]->record(LK_COMPUTE);
  flying_.push_back(std::move(batch));
}

double StepRunner::sum_seconds() {
  const int64_t ranks = options_.collectives->world().size();
  const Work sums{
      .step = nullptr,
      .onto = false,
      .round = SumRound{.ranks = ranks, .share = 1.0f / static_cast<float>(ranks), .first = true, .last = true},
      .update = false};
  const auto run = [&] {
    if (options_.collectives->within_step())
      recording(sums).launch();
    else
      work(sums);
  };
  run();
  device_.synchronize();
  options_.collectives->world().meet();
  constexpr int repeats = 8;
  const Event start(device_), end(device_);
  start.record(LK_COMPUTE);
  for (int i = 0; i < repeats; ++i) run();
  end.record(LK_COMPUTE);
  device_.synchronize();
  return end.seconds_since(start) / repeats;
}

StepResult StepRunner::collect() {
  const int64_t slot = collected_++ % most_in_flight;
  const Event& landed = *landed_[static_cast<size_t>(slot)];
  if (sum_)
    options_.collectives->wait(landed);
  else
    landed.finish();
  const auto value = [&](int64_t offset) {
    float v = 0;
    std::memcpy(&v, results_.data() + slot * SCALARS + offset, sizeof v);
    return v;
  };
  StepResult result{value(LOSS),
                    value(NORM),
                    {value(LOSS_SCALE), value(LOSS_SCALE + 4)},
                    std::llround(value(STEP)),
                    std::llround(value(AVERAGED)),
                    std::move(flying_.front())};
  flying_.pop_front();
  if (!sum_) return result;
  options_.collectives->done();
  if (value(DISTRUST) != 0) options_.collectives->raise();
  return result;
}

}  // namespace lh
