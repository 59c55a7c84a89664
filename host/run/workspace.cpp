#include "run/workspace.h"

#include <algorithm>

#include "graph/op.h"
#include "run/branching.h"

namespace lh {

int64_t measured_workspace(Device& device, const std::function<void()>& work) {
  device.check(lk_measure_begin(device.context()), "measuring workspace");
  int64_t bytes = 0;
  try {
    work();
  } catch (...) {
    lk_measure_end(device.context(), nullptr);
    throw;
  }
  device.check(lk_measure_end(device.context(), &bytes), "measuring workspace");
  return bytes;
}

namespace {

void enqueue(Device& device, const Graph& graph, const Plan& plan) {
  const std::vector<View>& views = plan.views;
  // Places that no two storages share, as the checks of the kernels expect; nothing is there.
  auto* place = reinterpret_cast<std::byte*>(int64_t{1} << 40);
  std::vector<std::byte*> storage(views.size());
  for (uint32_t id = 1; id < views.size(); ++id) {
    if (views[id].root != id) continue;
    storage[id] = place;
    place += placed_bytes(views[id].storage);
  }
  std::vector<lk_tensor> tensors{lk_tensor{}};
  for (uint32_t id = 1; id < views.size(); ++id) {
    tensors.push_back(kernel_tensor(graph.desc(Value{id}), storage[views[id].root] + views[id].offset));
    set_strides(views[id], tensors.back());
  }
  Branching branching(device, plan.side_by_side);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op->alias) continue;
    branching.before(static_cast<int64_t>(n));
    std::vector<lk_tensor> in, out;
    for (const Value v : node.inputs) in.push_back(tensors[v.id]);
    for (const Value v : node.outputs) out.push_back(tensors[v.id]);
    for (size_t i = 0; i < std::min(out.size(), node.op->in_place.size()); ++i)
      if (const size_t from = node.op->in_place[i]; from < in.size() && in[from].data != nullptr) out[i] = in[from];
    device.check(node.op->launch({device.context(), in, out, node.attrs}), graph.describe(node));
  }
  branching.join();
}

// About what a GPU's libraries ask for: an accumulator of the largest activation in float32 and half as much again, and
// the widest form of a weight in 8 or 4 bits.
int64_t usual_workspace(const Graph& graph) {
  constexpr int64_t least = 64 << 20;
  int64_t activation = 0, weight = 0;
  for (const Node& node : graph.nodes) {
    for (const Value out : node.outputs)
      if (is_float(graph.desc(out).dtype)) activation = std::max(activation, graph.desc(out).shape.numel());
    for (const Value in : node.inputs)
      if (in && is_quantised(graph.desc(in).dtype)) weight = std::max(weight, graph.desc(in).shape.numel());
  }
  return least + 6 * activation + weight * dtype_size(graph.compute);
}

}  // namespace

int64_t workspace_bytes(Device& device, const Graph& graph, const Plan& plan) {
  return workspace_bytes(device, {{&graph, &plan}});
}

int64_t workspace_bytes(Device& device, const std::vector<PlannedGraph>& graphs) {
  if (device.stands_for_gpu()) {
    int64_t most = 0;
    for (const PlannedGraph& planned : graphs) most = std::max(most, usual_workspace(*planned.graph));
    return most;
  }
  if (device.is_cpu()) return 0;  // takes its scratch from the host's heap
  return measured_workspace(device, [&] {
    Fork fork(device, static_cast<int32_t>(std::min<size_t>(graphs.size(), LK_MAX_BRANCHES)));
    for (const PlannedGraph& planned : graphs) enqueue(device, *planned.graph, *planned.plan);
    fork.join();
  });
}

Workspace::Workspace(Device& device, int64_t bytes) : device_(device) {
  if (bytes == 0) return;
  memory_ = DeviceMemory(device, bytes, "workspace");
  device.check(lk_set_workspace(device.context(), memory_.data(), bytes), "workspace");
}

Workspace::~Workspace() { lk_set_workspace(device_.context(), nullptr, 0); }

}  // namespace lh
