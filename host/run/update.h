// An optimizer's step at work: states in device memory, and the graphs of the plan as programs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/program.h"
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
  int64_t offset = 0;          // bytes
  bool channels_last = false;  // lies in memory as its tensor does
};

class Update {
 public:
  Update(Device& device, const UpdatePlan& plan, const UpdateMemory& memory);

  void run();         // one step
  void evaluate();    // the weights that are saved and sampled with, into memory.evaluation
  void initialise();  // every state as it is before the first step; p must be there
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
  using Storage = std::function<std::byte*(const std::string& name, bool output)>;
  std::byte* group_storage(size_t group, const std::string& name) const;
  Work make(const UpdateGraphPlan& plan, std::byte* arena, const Storage& storage);
  void add_block(const UpdateBlock& block);
  void list_states();
  void start(const StoredState& state) const;
  void run(const Work& work);
  void reduce(const Reduction& reduction);

  Device& device_;
  const UpdatePlan& plan_;
  UpdateMemory memory_;
  DeviceMemory states_, numbers_;
  std::vector<StoredState> stored_;
  std::vector<std::vector<std::vector<Work>>> passes_;  // by group, pass, block
  std::vector<std::vector<Work>> between_;              // by group, pass
  std::vector<Work> evaluation_;
};

}  // namespace lh
