// Keeps the changes of plain pairs below a norm (sd-scripts' scale_weight_norms), inside the recorded step:
//   n = |scale up down|;  down and up are multiplied by sqrt(min(1, limit / n))
#pragma once

#include <memory>
#include <vector>

#include "compile/adapters.h"
#include "run/plan.h"

namespace lh {

class NormLimit {
 public:
  // Throws lh::Error(Code::config) where a module is no pair.
  NormLimit(const Adapters& adapters, double limit);
  std::vector<PlannedGraph> graphs() const;
  // Before run(), when the adapters have memory.
  void bind(Device& device, const Adapters& adapters, std::byte* arena);
  void run();

 private:
  struct Module {
    std::unique_ptr<Program> program;
    std::vector<std::pair<lk_tensor, lk_tensor>> copies;  // from, to
  };
  std::vector<Graph> graphs_;  // one for each module
  std::vector<Plan> plans_;
  std::vector<Module> modules_;
  Device* device_ = nullptr;
};

}  // namespace lh
