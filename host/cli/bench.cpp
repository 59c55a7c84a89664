// lora-host bench: whole training steps without a dataset, with the weights of a checkpoint or with made-up ones.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "cli/commands.h"
#include "core/bytes.h"
#include "encode/try_model.h"
#include "io/synthetic.h"
#include "plugin/registry.h"
#include "run/flops.h"
#include "run/lr_schedule.h"
#include "run/recording.h"
#include "train/prepare.h"
#include "train/step_runner.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Times {
  double least, median, most;
};

Times summary(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2], seconds.back()};
}

// TFLOP/s of a product of n x n matrices, the best of a few.
double matmul_rate(Device& device, DType dtype, int64_t n) {
  const Desc desc{dtype, {n, n}};
  const DeviceMemory memory(device, 3 * desc.bytes(), "matrix product");
  const auto matrix = [&](int64_t i) { return kernel_tensor(desc, memory.data() + i * desc.bytes()); };
  for (int64_t i = 0; i < 2; ++i) {
    const lk_random_normal_params fill{.y = matrix(i), .scale = 1, .seed = 1, .stream = static_cast<uint64_t>(i)};
    device.check(lk_random_normal(device.context(), &fill), "matrix product");
  }
  const lk_matmul_params product{.a = matrix(0), .b = matrix(1), .c = matrix(2), .transpose_a = 0, .transpose_b = 0};
  const Event start(device), end(device);
  double best = 1e30;
  for (int i = 0; i < 8; ++i) {
    start.record(LK_COMPUTE);
    device.check(lk_matmul(device.context(), &product), "matrix product");
    end.record(LK_COMPUTE);
    device.synchronize();
    if (i > 0) best = std::min(best, end.seconds_since(start));  // the first one looks for an algorithm
  }
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / best * 1e-12;
}

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

// Inputs of a step as training makes them, from made-up images and prompts at half noise.
StepInputs step_inputs(const Model& model, const Graph& graph, const Sizes& sizes) {
  const DenoiserInputs table(model.recipe());
  const NamedTensors conditioning = table.pattern(graph);
  const auto side = [&](const char* name) {
    return static_cast<float>(sizes.at(name) * model.recipe().latents.downscale);
  };
  const float h = side("height"), w = side("width");
  const InputRow row{&conditioning, {0.5, 0.5, 0.5f}, 1, {h, w, 0, 0, h, w}, table.pattern_images(sizes)};
  StepInputs inputs{table.batch(std::vector<InputRow>(static_cast<size_t>(sizes.at("batch")), row), sizes)};
  for (const char* name : {"latents", "target", "loss_weight", "loss_delta"})
    if (const auto it = graph.inputs.find(name); it != graph.inputs.end())
      inputs.tensors[name] = made_up(graph.desc(it->second).shape);
  return inputs;
}

// A checkpoint without contents, made from a key list; removed at the end.
class HollowCheckpoint {
 public:
  explicit HollowCheckpoint(const fs::path& key_list)
      : path_(fs::temp_directory_path() / fmt::format("lora-host-bench-{}.safetensors", getpid())) {
    make_hollow_checkpoint(key_list, path_);
  }
  ~HollowCheckpoint() {
    std::error_code none;
    fs::remove(path_, none);
  }
  HollowCheckpoint(const HollowCheckpoint&) = delete;
  HollowCheckpoint& operator=(const HollowCheckpoint&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Rows of text: as many as asked for; of the model's own encoders, or of its longest tokenizer where they are not
// there.
Sizes text_lengths(Device& device, const Model& model, int64_t asked) {
  int64_t longest = asked;
  bool complete = asked == 0;
  for (const auto& [encoder, spec] : model.recipe().tokenizers) {
    complete &= model.checkpoint().has(encoder);
    if (asked == 0) longest = std::max(longest, spec.length);
  }
  if (complete) return TextEncoding(device, model, DType::f32, {}).most_lengths();
  Sizes lengths;
  for (const auto& [name, spec] : model.recipe().inputs)
    if (spec.source == InputSpec::Source::conditioner) lengths[length_size(name)] = longest;
  return lengths;
}

}  // namespace

int run_bench(const Options& options) {
  const double launched = now();
  Config config = options.config;
  std::optional<HollowCheckpoint> hollow;
  if (!options.input.empty()) config.model.name_or_path = hollow.emplace(options.input).path();
  const Registry& registry = *options.registry;
  try_model(registry, config.model, config.plugin, compute_dtype(config.train.dtype));
  Device device(config.device, config.train.deterministic);
  const lk_device_info before = device.info();
  const Model model(registry, config.model, config.plugin);
  const DType compute = compute_dtype(config.train.dtype);
  const auto adapter = std::make_shared<Adapter>(registry, config.network.type, config.network.network_kwargs);
  const AdapterSelection selection(config.network, model.recipe(), 1, model.checkpoint().weights(), false, adapter);
  const int64_t side = config.datasets.front().resolution.front();
  const PlanOptions plan_options{.step = {.compute = compute,
                                          .loss = config.train.loss,
                                          .weighted = TrainingObjective(config.train, model.recipe()).weighted(),
                                          .recompute = config.train.gradient_checkpointing == "true" ? 1.0 : 0.0},
                                 .batch = config.train.batch_size,
                                 .norm_limit = config.network.scale_weight_norms};
  const StepShape shape{{side, side}, text_lengths(device, model, options.text_length)};
  TrainPlan plan(device, model, registry, config.train, selection, {shape}, plan_options);
  const TrainGraph& train = plan.largest();
  const double work = flops(train.graph);

  fmt::print("device                 {}{}\n", before.name,
             device.is_cpu() ? fmt::format(", {} threads", device.threads()) : fmt::format(", {}", before.libraries));
  fmt::print("model                  {} {}, {}x{} pixels, batch {}, {} text tokens, {}\n", model.recipe().family,
             model.recipe().variant, side, side, config.train.batch_size,
             shape.lengths.empty() ? 0 : shape.lengths.begin()->second, dtype_name(compute));
  fmt::print("network                {} of rank {} on {} modules, {} parameters; {}\n", adapter->id(),
             config.network.linear, train.modules.size(), plan.adapters->parameter_count(),
             plan.optimizer->rules().base().id());
  fmt::print(
      "plan                   {:.1f} MiB: weights {:.1f}, LoRA and optimizer {:.1f}, activations {:.1f} ({} of {} "
      "blocks recomputed), workspace {:.1f}, other {:.1f}\n",
      mib(plan.memory.total()), mib(plan.memory.weights), mib(plan.memory.adapters), mib(plan.memory.activations),
      train.recomputed_scopes, train.checkpoint_scopes, mib(plan.memory.workspace), mib(plan.memory.small));
  const double planned = now();
  const Weights weights(device, model.checkpoint(), train.graph,
                        hollow ? Weights::Source::random : Weights::Source::file);
  device.synchronize();
  const double loaded = now();
  StepRunner runner(device, plan, weights,
                    {.max_grad_norm = config.train.max_grad_norm, .loss_scaling = compute == DType::f16});
  plan.adapters->initialise(1, [&](const std::string& weight) {
    if (!hollow) return model.checkpoint().read_f32(weight);
    HostTensor made(Desc{DType::f32, model.checkpoint().weights().at(weight).shape});
    std::ranges::fill(made.as<float>(), 0.02f);  // its norm is all that matters
    return made;
  });
  runner.initialise();
  runner.set_state(0, {1024, 0});
  TrainStep& step = *plan.steps.begin()->second;
  const StepInputs inputs =
      step_inputs(model, train.graph, shape.sizes(model.recipe().latents, config.train.batch_size));
  const auto run_step = [&] {
    runner.enqueue(learning_rates(config.train, plan.optimizer->rates(config.train), 0), [&](int64_t) {
      return MicroBatch{&step, inputs};
    });
  };
  run_step();
  StepResult result = runner.collect();
  fmt::print("start                  {:.1f} s: plan {:.1f}, weights {:.1f}, first step {:.1f}\n", now() - launched,
             planned - launched, loaded - planned, now() - loaded);

  std::vector<double> seconds;
  const int64_t repeats = options.repeats;
  double last = 0;
  run_step();
  for (int64_t i = 0; i < repeats; ++i) {  // one step is always waiting, as in training
    run_step();
    result = runner.collect();
    const double t = now();
    if (i > 0) seconds.push_back(t - last);
    last = t;
  }
  runner.collect();
  const Times t = summary(seconds);
  fmt::print("step                   {:.2f} ms median ({:.2f} to {:.2f}, {} steps), {:.3f} TFLOP, loss {:.4f}\n",
             1e3 * t.median, 1e3 * t.least, 1e3 * t.most, seconds.size(), work * 1e-12, result.loss);
  fmt::print("update                 {:.3f} ms, {:.1f} MiB of states, {:.2f} bytes a parameter\n",
             1e3 * update_seconds(device, runner.update()), mib(state_bytes(runner.update())),
             static_cast<double>(state_bytes(runner.update())) / static_cast<double>(plan.adapters->parameter_count()));
  const int64_t peak = device.peak(), used = before.memory_free - device.info().memory_free;
  const double product = matmul_rate(device, compute, device.is_cpu() ? 2048 : 8192);
  fmt::print("rate                   {:.3f} TFLOP/s, {:.0f}% of a large matrix product's {:.3f}\n",
             work / t.median * 1e-12, 100 * work / t.median * 1e-12 / product, product);
  fmt::print("memory                 {:.1f} MiB planned, {:.1f} MiB taken at most", mib(plan.memory.total()),
             mib(peak));
  if (!device.is_cpu()) fmt::print(", {:.1f} MiB with what the libraries load", mib(used));
  fmt::print("\n");
  if (!options.times) return 0;
  step.program().time_ops();  // places in the queue are made at first use
  for (const auto& [name, time] : step.program().time_ops())
    fmt::print("op                     {:<28} {:>6} calls {:>10.3f} ms\n", name, time.calls, 1e3 * time.seconds);
  return 0;
}

}  // namespace lh
