// An optimizer on tensors of its own, without a model: parameters, gradients and states in device memory as a run has
// them, one group for each rule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "run/update.h"
#include "support/device.h"

namespace lh::test {

struct RunTensor {
  std::string name;
  HostTensor p;  // in the shape of files
  int32_t role = LH_ROLE_OTHER;
  uint32_t group = 0;
};

class OptimizerRun {
 public:
  // Every tensor begins at a multiple of 256 bytes, as those of a model do. part: of states in host memory
  // (UpdatePlan).
  OptimizerRun(Device& device, const std::vector<const Optimizer*>& rules, std::vector<RunTensor> tensors,
               StatePlace place = StatePlace::device, int64_t part = UpdatePlan::usual_part)
      : device_(device), tensors_(std::move(tensors)) {
    std::vector<TrainedTensor> trained;
    for (const RunTensor& tensor : tensors_) {
      trained.push_back({{.name = tensor.name,
                          .module = tensor.name,
                          .role = tensor.role,
                          .rank = 0,
                          .group = tensor.group,
                          .shape = tensor.p.desc.shape},
                         false,
                         elements_});
      elements_ += (tensor.p.desc.shape.numel() + 63) / 64 * 64;
    }
    std::vector<UpdateGroup> groups;
    for (const Optimizer* rule : rules) groups.push_back({"group" + std::to_string(groups.size()), rule});
    plan_ = std::make_unique<UpdatePlan>(groups, std::move(trained), place, part);
    const int64_t bytes = elements_ * 4;
    memory_ = DeviceMemory(device, 3 * bytes, "p, g, evaluation");
    scalars_ = DeviceMemory(device, 256 * static_cast<int64_t>(1 + rules.size()), "scalars");
    arena_ = DeviceMemory(device, plan_->arena_bytes(), "arena");
    const std::vector<std::byte> zeros(static_cast<size_t>(3 * bytes));
    memory_.upload(0, zeros.data(), 3 * bytes);
    UpdateMemory memory{memory_.data(),  memory_.data() + bytes, memory_.data() + 2 * bytes, {},
                        scalars_.data(), arena_.data()};
    for (size_t g = 0; g < rules.size(); ++g) memory.lr.push_back(scalars_.data() + 256 * (g + 1));
    update_ = std::make_unique<Update>(device, *plan_, memory);
    for (size_t i = 0; i < tensors_.size(); ++i)
      memory_.upload(offset(i), tensors_[i].p.data.data(), tensors_[i].p.desc.bytes());
    update_->initialise();
  }

  const std::vector<RunTensor>& tensors() const { return tensors_; }
  Update& update() { return *update_; }
  const UpdatePlan& plan() const { return *plan_; }

  HostTensor p(size_t i) const { return section(0, i); }
  void set_gradient(size_t i, const HostTensor& g) {
    memory_.upload(elements_ * 4 + offset(i), g.data.data(), g.desc.bytes());
  }
  // lr: of each group. part: of the update.
  void step(const std::vector<float>& lr, const Update::Part& part = Update::always) {
    const float count = static_cast<float>(++steps_);
    scalars_.upload(0, &count, 4);
    for (size_t g = 0; g < lr.size(); ++g) scalars_.upload(256 * static_cast<int64_t>(g + 1), &lr[g], 4);
    update_->run(part);
  }
  // Takes over parameters, states and the number of steps, as a run does that is resumed.
  void go_on_from(const OptimizerRun& other) {
    steps_ = other.steps_;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const HostTensor p = other.p(i);
      memory_.upload(offset(i), p.data.data(), p.desc.bytes());
    }
    update_->initialise();
    for (const StoredState& state : update_->states()) update_->upload(state, other.state(state.key));
  }
  // The weights that would be saved.
  HostTensor evaluated(size_t i) {
    update_->evaluate();
    return section(2, i);
  }
  HostTensor state(const std::string& key) const {
    for (const StoredState& state : update_->states())
      if (state.key == key) return update_->download(state);
    throw std::runtime_error("no state " + key);
  }
  bool has_state(const std::string& key) const {
    return std::ranges::any_of(update_->states(), [&](const StoredState& state) { return state.key == key; });
  }

 private:
  int64_t offset(size_t i) const { return plan_->tensors()[i].offset * 4; }
  HostTensor section(int64_t number, size_t i) const {
    HostTensor out(tensors_[i].p.desc);
    memory_.download(number * elements_ * 4 + offset(i), out.data.data(), out.desc.bytes());
    return out;
  }

  Device& device_;
  std::vector<RunTensor> tensors_;
  int64_t elements_ = 0, steps_ = 0;
  std::unique_ptr<UpdatePlan> plan_;
  DeviceMemory memory_, scalars_, arena_;
  std::unique_ptr<Update> update_;
};

}  // namespace lh::test
