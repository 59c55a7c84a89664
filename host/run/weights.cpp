#include "run/weights.h"

#include <algorithm>

#include "io/synthetic.h"
#include "run/plan.h"

namespace lh {

std::vector<std::string> weight_names(const Graph& graph, const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, value] : graph.params)
    if (checkpoint.weights().contains(name)) names.push_back(name);
  return names;
}

int64_t weight_bytes(const Graph& graph, const std::vector<std::string>& names) {
  int64_t total = 0;
  for (const std::string& name : names) total += placed_bytes(graph.desc(graph.params.at(name)).bytes());
  return total;
}

Weights::Weights(Device& device, const Checkpoint& checkpoint, const Graph& graph, Source source) {
  const std::vector<std::string> names = weight_names(graph, checkpoint);
  memory_ = DeviceMemory(device, weight_bytes(graph, names), "model weights");
  int64_t offset = 0;
  for (const std::string& name : names) {
    offsets_[name] = offset;
    offset += placed_bytes(graph.desc(graph.params.at(name)).bytes());
  }
  if (source == Source::file)
    read(device, checkpoint, graph, names);
  else
    make(device, graph, names);
}

void Weights::read(Device& device, const Checkpoint& checkpoint, const Graph& graph,
                   const std::vector<std::string>& names) {
  const auto desc = [&](const std::string& name) -> const Desc& { return graph.desc(graph.params.at(name)); };
  const auto read_to = [&](const std::string& name, std::byte* out) {
    const bool channels_last = graph.info(graph.params.at(name)).channels_last;
    checkpoint.read(name, desc(name).dtype, channels_last, {out, static_cast<size_t>(desc(name).bytes())});
  };
  if (device.is_cpu()) {
    for (const std::string& name : names) read_to(name, memory_.data() + offsets_[name]);
    return;
  }
  // One tensor is read from the file while the one before is on its way to the device.
  int64_t largest = 0;
  for (const std::string& name : names) largest = std::max(largest, desc(name).bytes());
  const StagingMemory staging[2] = {StagingMemory(device, largest), StagingMemory(device, largest)};
  const Event sent[2] = {Event(device), Event(device)};
  for (size_t i = 0; i < names.size(); ++i) {
    const size_t slot = i % 2;
    if (i >= 2) sent[slot].finish();
    read_to(names[i], staging[slot].data());
    device.check(lk_copy_async(device.context(), LK_TRANSFER, memory_.data() + offsets_[names[i]], staging[slot].data(),
                               desc(names[i]).bytes()),
                 names[i]);
    sent[slot].record(LK_TRANSFER);
  }
  device.synchronize();
}

void Weights::make(Device& device, const Graph& graph, const std::vector<std::string>& names) {
  uint64_t stream = 0;
  for (const std::string& name : names) {
    const Desc& desc = graph.desc(graph.params.at(name));
    const WeightLaw law = weight_law(name, desc.shape);
    const lk_tensor tensor = kernel_tensor(desc, memory_.data() + offsets_[name]);
    lk_status status = LK_OK;
    if (law.offset == 0) {
      const lk_random_normal_params normal{
          .y = tensor, .scale = static_cast<float>(law.deviation), .seed = 1, .stream = stream++};
      status = lk_random_normal(device.context(), &normal);
    } else {
      const lk_fill_params fill{.y = tensor, .value = law.offset};
      status = lk_fill(device.context(), &fill);
    }
    device.check(status, name);
  }
}

Externals Weights::bind(const Graph& graph) const {
  Externals externals;
  for (const auto& [name, value] : graph.params)
    if (const auto it = offsets_.find(name); it != offsets_.end()) externals[value] = memory_.data() + it->second;
  return externals;
}

}  // namespace lh
