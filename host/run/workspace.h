// Memory that operations need only while they run, found without running anything.
#pragma once

#include <functional>
#include <vector>

#include "graph/graph.h"
#include "run/device.h"
#include "run/plan.h"

namespace lh {

// The most that one operation enqueued by `work` needs, or a fork. Nothing is computed; addresses need only be there.
int64_t measured_workspace(Device& device, const std::function<void()>& work);
int64_t workspace_bytes(Device& device, const Graph& graph, const Plan& plan);
// Of graphs that run side by side.
int64_t workspace_bytes(Device& device, const std::vector<PlannedGraph>& graphs);

// Workspace of a fixed size, lent to the device while this lives.
class Workspace {
 public:
  Workspace(Device& device, int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  Device& device_;
  DeviceMemory memory_;
};

}  // namespace lh
