// Runs an optimizer's update graph on one tensor, in the storage of the tensor and its states.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "plugin/optimizer.h"
#include "run/program.h"

namespace lh {

class Update {
 public:
  // storage: "p", "g", "lr", "step" and every state -> device memory.
  Update(Device& device, const Optimizer& optimizer, const Shape& shape, const std::map<std::string, void*>& storage);
  void run();

 private:
  struct Copy {
    lk_tensor from, to;
  };
  Device& device_;
  DeviceMemory arena_;
  std::unique_ptr<Program> program_;
  std::vector<Copy> copies_;  // results that the graph could not write in place
};

}  // namespace lh
