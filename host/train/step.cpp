// Inputs of a step in one message, and the search for the op that first overflows.
#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/log.h"

namespace lh {

namespace {

constexpr const char* loss_scale_input = "loss_scale";

}  // namespace

TrainStep::TrainStep(TrainGraph graph)
    : train_(std::move(graph)), plan_(plan_memory(train_.graph, external_to_step(train_.graph))) {
  for (const auto& [name, value] : train_.graph.inputs) {
    if (name == loss_scale_input) continue;
    input_offsets_[name] = input_bytes_;
    input_bytes_ += placed_bytes(train_.graph.desc(value).bytes());
  }
  if (verbose("plan")) log_info("plan: {}", print(train_.graph, plan_, 40));
}

void TrainStep::bind(Device& device, const StepMemory& memory, const Weights& weights, const Adapters& adapters) {
  const Graph& graph = train_.graph;
  Externals externals = weights.bind(graph);
  adapters.bind(graph, externals);
  absent_.clear();
  for (const AdapterTensor& tensor : adapters.tensors())
    if (const auto made = graph.outputs.find("grad." + tensor.name); made != graph.outputs.end())
      externals[made->second] = adapters.at("g", tensor);
    else
      absent_.push_back(kernel_tensor({DType::f32, tensor.shape}, adapters.at("g", tensor)));
  for (const auto& [name, offset] : input_offsets_) externals[graph.inputs.at(name)] = memory.inputs + offset;
  externals[graph.inputs.at(loss_scale_input)] = memory.loss_scale;
  int64_t on_host = 0;
  for (const auto& [there, kept] : offloaded_values(graph)) {
    externals[there] = externals[kept] = memory.host + on_host;
    on_host += placed_bytes(graph.desc(there).bytes());
  }
  program_ = std::make_unique<Program>(device, graph, plan_, memory.arena, externals);
}

// nullptr for the counter, which is no tensor of StepInputs.
const HostTensor* TrainStep::given(const std::string& name, const StepInputs& inputs) const {
  if (name == "step") return nullptr;
  const auto found = inputs.tensors.find(name);
  if (found == inputs.tensors.end())
    fail(Code::plugin, "the denoiser asks for an input '{}', for which the recipe has no source", name);
  const Desc& want = train_.graph.desc(train_.graph.inputs.at(name));
  if (found->second.desc.shape != want.shape)
    fail(Code::internal, "input '{}' is {}, expected {}", name, found->second.desc.text(), want.text());
  return &found->second;
}

void TrainStep::write(const StepInputs& inputs, std::byte* staging) const {
  for (const auto& [name, offset] : input_offsets_) {
    const HostTensor* tensor = given(name, inputs);
    if (tensor == nullptr)
      std::memcpy(staging + offset, &inputs.step, sizeof inputs.step);
    else
      convert(tensor->desc.dtype, tensor->data.data(), train_.graph.desc(train_.graph.inputs.at(name)).dtype,
              staging + offset, tensor->desc.shape.numel());
  }
}

void TrainStep::clear_absent(Device& device) const {
  for (const lk_tensor& gradient : absent_) {
    const lk_fill_params params{.y = gradient, .value = 0};
    device.check(lk_fill(device.context(), &params), "gradients of what is not in the step");
  }
}

void TrainStep::run(const StepInputs& inputs, const Program::Probe& probe) {
  for (const auto& [name, offset] : input_offsets_) {
    const HostTensor* tensor = given(name, inputs);
    program_->set_input(name, tensor != nullptr ? *tensor : HostTensor::from_ints({1}, std::span(&inputs.step, 1)));
  }
  program_->run(probe);
}

std::vector<size_t> TrainStep::gradient_nodes(const Adapters& adapters) const {
  const Graph& graph = train_.graph;
  std::map<uint32_t, size_t> made_by;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (const Value out : graph.nodes[n].outputs) made_by[out.id] = n;
  std::vector<size_t> nodes;
  for (const AdapterTensor& tensor : adapters.tensors())
    if (const auto made = graph.outputs.find("grad." + tensor.name); made != graph.outputs.end())
      nodes.push_back(made_by.at(made->second.id));
    else
      nodes.push_back(0);  // clear_absent() is in front of it
  return nodes;
}

double TrainStep::loss() const { return program_->output("loss").as<float>()[0]; }

FirstNonFinite find_non_finite(Device& device, TrainStep& step, const StepInputs& inputs) {
  FirstNonFinite found;
  const Graph& graph = step.train_graph().graph;
  step.run(inputs, [&](const Node& node, std::span<const lk_tensor> outputs) {
    for (const lk_tensor& t : outputs) {
      if (!found.op.empty() || !is_float(static_cast<DType>(t.dtype)) || t.data == nullptr) continue;
      const HostTensor raw = device.download(t);
      HostTensor values(Desc{DType::f32, raw.desc.shape});
      convert(raw.desc.dtype, raw.data.data(), DType::f32, values.data.data(), raw.desc.shape.numel());
      if (std::ranges::all_of(values.as<float>(), [](float v) { return std::isfinite(v); })) continue;
      found.op = graph.describe(node);
      for (const Value in : node.inputs)
        if (in && graph.params.contains(graph.info(in).name)) found.weights.push_back(graph.info(in).name);
    }
  });
  return found;
}

}  // namespace lh
