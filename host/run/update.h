// An optimizer's update graph at work on one tensor, in the storage of the tensor and its states.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/optimizer.h"
#include "run/program.h"

namespace lh {

// The update of a tensor of one shape, planned: which results go straight into the storage of what they replace.
struct UpdatePlan {
  UpdatePlan(const Optimizer& optimizer, const Shape& shape);
  // One pass over a tensor that nothing but itself and scalars goes into: several tensors may be updated as one.
  bool one_pass() const;

  std::string optimizer;
  Shape shape;
  Graph graph;
  bool elementwise;                                   // as the rule gave it, before its ops became programs
  std::map<Value, std::string> external;              // value -> what it is stored in: "p", "g", "lr", "step", a state
  std::vector<std::pair<Value, std::string>> copied;  // results that are copied there at the end
  Plan plan;
};

class Update {
 public:
  // storage: "p", "g", "lr", "step" and every state -> device memory. arena: plan.plan.bytes, for this update's
  // intermediates only, so that updates may share it.
  Update(Device& device, const UpdatePlan& plan, const std::map<std::string, void*>& storage, std::byte* arena);
  void run();

 private:
  struct Copy {
    lk_tensor from, to;
  };
  Device& device_;
  std::unique_ptr<Program> program_;
  std::vector<Copy> copies_;
};

}  // namespace lh
