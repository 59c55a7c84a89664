// A graph made ready to run: buffers placed, tensors bound, one launch for each node.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lora_kernels.h"
#include "run/device.h"
#include "run/plan.h"

namespace lh {

// Memory that the caller owns, by value: weights, trained tensors, gradients.
using Externals = std::map<Value, void*>;

class Program {
 public:
  // `arena` holds at least plan.bytes (made from the same graph, with the keys of `externals` as external values) and
  // may be shared by programs that do not run at the same time.
  Program(Device& device, Graph graph, Plan plan, std::byte* arena, const Externals& externals);

  const Graph& graph() const { return graph_; }
  const Plan& plan() const { return plan_; }
  void set_input(const std::string& name, const HostTensor& tensor);
  // Runs every node. `after` (optional) is called after each one, for diagnosis.
  using Probe = std::function<void(const Node&, std::span<const lk_tensor> outputs)>;
  void run(const Probe& after = {});
  // Runs every node and gives the device's time by op name.
  struct OpTime {
    int64_t calls = 0;
    double seconds = 0;
  };
  std::map<std::string, OpTime> time_ops();
  HostTensor output(const std::string& name) const;
  lk_tensor tensor(Value v) const;

 private:
  // A copy from or to host memory, or of another process, beside the operations (passes/stream.h, passes/offload.h); or
  // what one of this process takes to get there.
  struct Transfer {
    explicit Transfer(Device& device) : begin(device), there(device) {}
    Event begin, there;  // what it waits for has happened; what was sent is there
  };
  struct Step {
    size_t node;
    std::vector<lk_tensor> in, out;
    Transfer* sends = nullptr;
    std::vector<Transfer*> awaits;  // what it is the first to read
    bool shared = false;            // sends a weight that processes have in parts
  };
  void launch(Step& step);
  void record();
  void order_transfers();
  Device& device_;
  Graph graph_;
  Plan plan_;
  DeviceMemory constants_;
  std::vector<void*> address_;  // by value id
  std::vector<Step> steps_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

// Owns its arena as well: for graphs that run alone (encoders, VAE, sampler stages).
class OwnedProgram {
 public:
  OwnedProgram() = default;
  OwnedProgram(Device& device, Graph graph, const Externals& externals, std::string_view what);
  explicit operator bool() const { return program_ != nullptr; }
  Program& operator*() { return *program_; }
  Program* operator->() { return program_.get(); }

 private:
  DeviceMemory arena_;
  std::unique_ptr<Program> program_;
};

// Logs times by op name, the longest first.
void print(const std::map<std::string, Program::OpTime>& times);

}  // namespace lh
