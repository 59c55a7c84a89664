// lora-host bench: the machine's matrix-product rate, and the denoiser's forward and backward pass beside it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli/commands.h"
#include "core/log.h"
#include "plugin/registry.h"
#include "run/flops.h"
#include "run/update.h"
#include "train/prepare.h"

namespace lh {
namespace {

struct Times {
  double least, median, most;
};

template <typename Work>
Times measure(int repeats, Work work) {
  work();  // first use of memory
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(seconds);
  return {seconds.front(), seconds[seconds.size() / 2], seconds.back()};
}

// GFLOP/s of a float32 product of n x n matrices.
double matmul_rate(Device& device, int64_t n) {
  const DeviceMemory memory(device, 3 * n * n * 4, "matrix product");
  const std::vector<float> ones(static_cast<size_t>(n * n), 1.0f);
  for (int64_t i = 0; i < 3; ++i) memory.upload(i * n * n * 4, ones.data(), n * n * 4);
  const Desc desc{DType::f32, {n, n}};
  lk_matmul_params p{};
  p.a = kernel_tensor(desc, memory.data());
  p.b = kernel_tensor(desc, memory.data() + n * n * 4);
  p.c = kernel_tensor(desc, memory.data() + 2 * n * n * 4);
  const Times t = measure(7, [&] { device.check(lk_matmul(device.context(), &p), "matmul"); });
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / t.least * 1e-9;
}

// The inputs of a step, filled with a fixed pattern: the values do not change the time.
void fill_inputs(Program& program) {
  for (const auto& [name, value] : program.graph().inputs) {
    const Desc& desc = program.graph().desc(value);
    HostTensor tensor(Desc{DType::f32, desc.shape});
    const std::span<float> values = tensor.as<float>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i % 97) - 0.5f;
    if (name == "timestep" || name == "loss_scale") std::ranges::fill(values, 0.5f);
    program.set_input(name, tensor);
  }
}

}  // namespace

int run_bench(const Options& options) {
  const Config& config = options.config;
  const Registry registry(options.plugin_dirs, {});
  Device device(config.device);
  const double peak = matmul_rate(device, 2048);
  fmt::print("threads                {}\nsgemm 2048^3           {:.1f} GFLOP/s\n", device.threads(), peak);

  const Model model(registry, config.model, config.plugin);
  const DType compute = compute_dtype(config.train.dtype);
  const TextEncoding text(device, model, DType::f32, {});
  const AdapterSelection selection(config.network, model.recipe(), 1);
  const int64_t side = config.datasets.front().resolution.front() / model.recipe().latents.downscale;
  const Sizes sizes{
      {"batch", config.train.batch_size}, {"height", side}, {"width", side}, {"text_length", text.length()}};
  const double recompute = config.train.gradient_checkpointing == "true" ? 1 : 0;
  TrainStep step(build_train_graph(model, sizes, selection, {.compute = compute, .recompute = recompute}), true);
  const Graph& graph = step.train_graph().graph;
  const Weights weights(device, model.checkpoint(), graph);
  Adapters adapters(graph, step.train_graph().modules, {});
  adapters.allocate(device);
  adapters.initialise(1);
  const DeviceMemory arena(device, step.arena_bytes(), "activations");
  step.bind(device, arena.data(), weights, adapters);
  fill_inputs(step.program());
  const Times t = measure(10, [&] { step.program().run(); });
  const double work = flops(graph), rate = work / t.median * 1e-9;
  fmt::print("model                  {} {}, {}x{} pixels, batch {}, rank {}, {}\n", model.recipe().family,
             model.recipe().variant, side * model.recipe().latents.downscale, side * model.recipe().latents.downscale,
             config.train.batch_size, config.network.linear, dtype_name(compute));
  fmt::print("forward + backward     {:.1f} ms median ({:.1f} to {:.1f}), {:.2f} GFLOP\n", 1e3 * t.median,
             1e3 * t.least, 1e3 * t.most, work * 1e-9);
  fmt::print("rate                   {:.1f} GFLOP/s, {:.0f}% of sgemm\n", rate, 100 * rate / peak);
  fmt::print("memory                 {:.1f} MiB planned, {:.1f} MiB taken at most\n",
             static_cast<double>(weights.bytes() + adapters.bytes() + arena.bytes()) / 1048576,
             static_cast<double>(device.peak()) / 1048576);
  if (verbose("time")) print_op_times();
  return 0;
}

}  // namespace lh
