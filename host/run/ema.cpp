// The law of the decay as a graph of the number of updates.
#include "run/ema.h"

#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

// Laws whose first update copies.
bool begins_with_a_copy(const EmaConfig& config) { return config.warmup == "diffusers" || config.warmup == "power"; }

Graph average_graph(const EmaConfig& config, int64_t elements) {
  Graph g(DType::f32);
  const auto emit = [&](const OpDef& op, std::vector<Value> in, Attrs attrs = {}) {
    return g.add(op, std::move(in), std::move(attrs), 0)[0];
  };
  const auto affine = [&](Value x, double scale, double shift) {
    return emit(affine_op, {x}, {{"scale", scale}, {"shift", shift}});
  };
  const auto number = [&](double v) {
    const auto value = static_cast<float>(v);
    return g.add_constant(HostTensor::from_floats({1}, std::span(&value, 1)));
  };
  const Value count = g.add_input("count", {DType::f32, {1}});
  const Value weights = g.add_input("weights", {DType::f32, {elements}});
  const Value average = g.add_input("average", {DType::f32, {elements}});
  const Value zero = number(0), one = number(1);
  const int64_t copies = config.update_after_step + (begins_with_a_copy(config) ? 1 : 0);
  const Value s = affine(count, 1, -static_cast<double>(copies));  // [1]
  // 1 - decay, by formulas of its own: the difference would lose the digits of a decay near 1.
  Value share = number(1 - config.ema_decay);
  if (config.warmup != "none") {
    const Value since = emit(max_op, {s, zero});
    const Value law = config.warmup == "power"
                          ? emit(exp_op, {affine(emit(log_op, {affine(since, 1 / config.inv_gamma.value_or(1), 1)}),
                                                 -config.power.value_or(2.0 / 3), 0)})
                          : emit(div_op, {number(9), affine(since, 1, 10)});
    share = emit(clamp_op, {law}, {{"low", 1 - config.ema_decay}, {"high", 1 - config.min_decay.value_or(0)}});
  }
  share = emit(where_op, {emit(greater_op, {s, zero}), share, one});
  const Value moved = emit(sub_op, {average, emit(mul_op, {emit(sub_op, {average, weights}), share})});
  // a - (a - w) is not w to the last bit.
  g.outputs["average"] = emit(where_op, {emit(greater_equal_op, {share, one}), weights, moved});
  return g;
}

void check(const EmaConfig& config) {
  struct Row {
    const char* key;
    bool given, used;
    const char* of;
  };
  const bool warms = config.warmup != "none", by_power = config.warmup == "power";
  const Row rows[] = {{"min_decay", config.min_decay.has_value(), warms, "num_updates, diffusers and power"},
                      {"inv_gamma", config.inv_gamma.has_value(), by_power, "power"},
                      {"power", config.power.has_value(), by_power, "power"}};
  for (const Row& row : rows)
    if (row.given && !row.used)
      fail(Code::config, "train.ema_config.{}: belongs to warmup {}, but the warmup is {}; remove it", row.key, row.of,
           config.warmup);
  if (config.min_decay.value_or(0) > config.ema_decay)
    fail(Code::config, "train.ema_config.min_decay: {} is above train.ema_config.ema_decay: {}", *config.min_decay,
         config.ema_decay);
}

}  // namespace

Ema::Ema(const EmaConfig& config, int64_t elements)
    : config_((check(config), config)),
      plan_(average_graph(config, elements)),
      bytes_(elements * static_cast<int64_t>(sizeof(float))) {
  if (!plan_.copied.empty()) fail(Code::internal, "the average of the weights is not updated in place");
}

std::string Ema::text() const {
  std::string text = fmt::format("decay {}, warm-up {}", config_.ema_decay, config_.warmup);
  if (config_.warmup == "power")
    text += fmt::format(" (inv_gamma {}, power {})", config_.inv_gamma.value_or(1), config_.power.value_or(2.0 / 3));
  if (config_.min_decay) text += fmt::format(", at least {}", *config_.min_decay);
  if (config_.update_after_step > 0) text += fmt::format(", after step {}", config_.update_after_step);
  return text;
}

void Ema::bind(Device& device, const EmaMemory& memory) {
  device_ = &device;
  memory_ = memory;
  Externals externals;
  for (const auto& [value, name] : plan_.external)
    externals[value] = name == "weights" ? memory.weights : name == "average" ? memory.average : memory.count;
  program_ = std::make_unique<Program>(device, plan_.graph, plan_.plan, memory.arena, externals);
}

void Ema::run() { program_->run(); }

void Ema::start() {
  device_->check(lk_copy_async(device_->context(), LK_COMPUTE, memory_.average, memory_.weights, bytes_),
                 "average of the weights");
}

}  // namespace lh
