#include "run/weights.h"

#include "run/plan.h"

namespace lh {

std::vector<std::string> weight_names(const Graph& graph, const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, value] : graph.params)
    if (checkpoint.weights().contains(name)) names.push_back(name);
  return names;
}

namespace {

int64_t place(int64_t bytes) { return (bytes + plan_alignment - 1) / plan_alignment * plan_alignment; }

}  // namespace

int64_t weight_bytes(const Graph& graph, const std::vector<std::string>& names) {
  int64_t total = 0;
  for (const std::string& name : names) total += place(graph.desc(graph.params.at(name)).bytes());
  return total;
}

Weights::Weights(Device& device, const Checkpoint& checkpoint, const Graph& graph) {
  const std::vector<std::string> names = weight_names(graph, checkpoint);
  memory_ = DeviceMemory(device, weight_bytes(graph, names), "model weights");
  int64_t offset = 0;
  for (const std::string& name : names) {
    const ValueInfo& info = graph.info(graph.params.at(name));
    HostTensor staged(info.desc);
    checkpoint.read(name, info.desc.dtype, info.channels_last, staged.data);
    memory_.upload(offset, staged.data.data(), info.desc.bytes());
    offsets_[name] = offset;
    offset += place(info.desc.bytes());
  }
}

Externals Weights::bind(const Graph& graph) const {
  Externals externals;
  for (const auto& [name, value] : graph.params)
    if (const auto it = offsets_.find(name); it != offsets_.end()) externals[value] = memory_.data() + it->second;
  return externals;
}

}  // namespace lh
