// An optimizer's step at work: states in device memory, or in host memory with their travels (state_travel.h), and the
// graphs of the plan as programs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/program.h"
#include "run/state_memory.h"
#include "run/update_plan.h"

namespace lh {

// Memory that outlives an update.
struct UpdateMemory {
  std::byte *p = nullptr, *g = nullptr;  // sections of all trained tensors, float32
  std::byte* evaluation = nullptr;       // likewise, where the plan evaluates
  std::vector<std::byte*> lr;            // f32 [1], of each group
  std::byte* step = nullptr;             // f32 [1]
  std::byte* arena = nullptr;            // arena_bytes() of the plan, for intermediates only
};

// A state of a tensor, or of a group, as files have it.
struct StoredState {
  std::string key;  // "m/blocks.0.lora_down.weight", "d/denoiser"
  StateSpec spec;
  Desc desc;
  int64_t offset = 0;          // bytes, in the memory of tensors' states or of groups' states
  bool channels_last = false;  // lies in memory as its tensor does
};

class Update {
 public:
  Update(Device& device, const UpdatePlan& plan, const UpdateMemory& memory);

  // Runs a part of a step's operations, or leaves it out (lk_if_finite_begin). States travel between the parts, those
  // of a part that is left out unchanged.
  using Part = std::function<void(const std::function<void()>&)>;
  static void always(const std::function<void()>& work) { work(); }

  void run(const Part& part = always);       // one step
  void evaluate(const Part& part = always);  // the weights that are saved and sampled with, into memory.evaluation
  void initialise();                         // every state as it is before the first step; p must be there
  const UpdatePlan& plan() const { return plan_; }

  // In the order of the memory.
  const std::vector<StoredState>& states() const { return stored_; }
  HostTensor download(const StoredState& state) const;
  void upload(const StoredState& state, const HostTensor& values) const;

 private:
  struct Work {
    std::unique_ptr<Program> program;
    std::vector<std::pair<lk_tensor, lk_tensor>> copies;
    int32_t branch = 0;
  };
  // A stay's ways (state_travel.h).
  struct Way {
    explicit Way(Device& device) : ready(device), there(device), done(device), back(device) {}
    Event ready, there, done, back;  // its place is free, it is there, nothing uses it there any more, it is back
  };
  // A travel at work.
  struct Ways {
    const StateTravel* travel = nullptr;
    std::vector<std::unique_ptr<Way>> ways;  // by stay
    size_t begun = 0;                        // stays on their way there or further
  };
  using Storage = std::function<std::byte*(const std::string& name, bool output)>;
  // Number of the visit of the block that is number `place` among those of its group (UpdatePlan::step_travel).
  size_t visit_of(size_t group, size_t pass, size_t place) const;
  std::byte* group_storage(size_t group, const std::string& name) const;
  Work make(const UpdateGraphPlan& plan, std::byte* arena, const Storage& storage);
  void add_block(size_t number);
  void list_states();
  void start(const StoredState& state) const;
  void start_as_parameter(const UpdateBlock& block, const StateSpec& state) const;
  void put(const StoredState& state, const HostTensor& values) const;
  void run(const Work& work);
  void run_here();  // with all states on the device
  void between(size_t group, size_t pass);
  void evaluate_block(size_t number);
  void reduce(const Reduction& reduction);
  Ways ways_of(const StateTravel& travel);
  // Of visit number `visit`: its states are there, and those behind it on their way; then back, where it was the last.
  void before(Ways& ways, size_t visit);
  void after(Ways& ways, size_t visit);
  void finish(Ways& ways);  // all are back
  void bring(const StateStay& stay, Way& way, const Ways& ways);
  void send(const StateStay& stay, const std::set<std::string>& states, lk_queue queue);
  // Of block number `block` on visit `visit`; nullptr: no state has that name.
  std::byte* state_storage(const StateTravel& travel, size_t block, size_t visit, const std::string& name) const;

  Device& device_;
  const UpdatePlan& plan_;
  UpdateMemory memory_;
  StateMemory states_;  // of tensors
  DeviceMemory group_states_, numbers_;
  Ways step_ways_, evaluation_ways_;
  std::vector<StoredState> stored_;
  std::vector<std::vector<std::vector<Work>>> passes_;  // by group, pass, block
  std::vector<std::vector<Work>> between_;              // by group, pass
  std::vector<Work> evaluation_;
};

}  // namespace lh
