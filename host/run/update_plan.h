// How an optimizer updates the trained tensors, planned before a step runs: which tensors go through one graph, where
// their states are, which results go straight into the storage of what they replace.
//
// A group's tensors are one flat tensor where the rule is elementwise. Otherwise those that lie side by side and have
// one shape, role and graph are stacked ([N, ...], passes/stack.h), and the others are updated one by one. The blocks
// of a group run side by side, since many of them are too small to fill a GPU.
//
// Where states are kept in host memory (state_travel.h), blocks run one after another, and a flat tensor is cut into
// several, unless its rule adds up over all of it or draws numbers by the place of an element: so no bit of a result
// depends on where the states are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plugin/optimizer.h"
#include "run/plan.h"
#include "run/state_travel.h"

namespace lh {

// A trained tensor and where it lies, in elements, in each section of the memory of all of them.
struct TrainedTensor {
  Parameter parameter;
  bool channels_last = false;  // [O, I, KH, KW] that lies in memory as [O, KH, KW, I]
  int64_t offset = 0;
};

// A group: its rule, and a name for files and messages.
struct UpdateGroup {
  std::string name;
  const Optimizer* rule = nullptr;
};

// A graph made ready: what each value is stored in, by name, and which results are copied there at the end.
struct UpdateGraphPlan {
  UpdateGraphPlan() = default;
  explicit UpdateGraphPlan(Graph g);
  Graph graph{DType::f32};
  std::map<Value, std::string> external;
  std::vector<std::pair<Value, std::string>> copied;
  Plan plan;
};

// Tensors of a group that one graph updates.
struct UpdateBlock {
  size_t group = 0;
  std::vector<size_t> tensors;
  int64_t count = 0;  // of tensors that are stacked; 0: one, or a group as one
  bool flat = false;
  int64_t offset = 0, elements = 0;              // in each section
  int32_t branch = 0;                            // of those that run side by side
  int64_t arena = 0;                             // where its intermediates begin, in bytes
  std::vector<StateSpec> states;                 // of one of its tensors
  std::map<std::string, int64_t> state_offsets;  // of the first one, in bytes, in the memory of states
  std::map<std::string, int64_t> state_bytes;    // of all of them
  std::map<std::string, int64_t> in_window;      // where they are in a place of the window, in bytes
  std::vector<UpdateGraphPlan> passes;
  UpdateGraphPlan evaluation;                         // without nodes: p itself
  std::vector<std::map<std::string, int64_t>> slots;  // by pass: where among the numbers its part of a reduction goes
};

// What happens between two passes: reductions of `parts` numbers each, then a graph.
struct Reduction {
  bool largest = false;                      // the maximum, not the sum
  int64_t first = 0, parts = 0, result = 0;  // bytes among the numbers; how many
};
struct UpdateBetween {
  std::vector<Reduction> reductions;
  UpdateGraphPlan graph;
};
struct GroupPlan {
  std::string name;
  const Optimizer* rule = nullptr;
  std::vector<StateSpec> states;                 // of the group
  std::map<std::string, int64_t> numbers;        // reductions, scalars -> bytes among the numbers
  std::map<std::string, int64_t> state_offsets;  // in the memory of groups' states, which is the device's
  std::vector<UpdateBetween> between;            // by pass
  int32_t branches = 0;                          // in which a pass goes over its blocks
};

class UpdatePlan {
 public:
  static constexpr int64_t usual_part = int64_t{32} << 20;  // the most bytes of states that travel together
  UpdatePlan(const std::vector<UpdateGroup>& groups, std::vector<TrainedTensor> tensors,
             StatePlace place = StatePlace::device, int64_t part = usual_part);

  const std::vector<TrainedTensor>& tensors() const { return tensors_; }
  const std::vector<UpdateBlock>& blocks() const { return blocks_; }
  const std::vector<GroupPlan>& groups() const { return groups_; }
  bool evaluates() const;  // the weights that are saved are not p itself
  StatePlace place() const { return place_; }
  int64_t state_bytes() const { return state_bytes_; }  // of tensors, which are at place()
  int64_t group_state_bytes() const { return group_state_bytes_; }
  int64_t number_bytes() const { return number_bytes_; }
  int64_t arena_bytes() const { return arena_bytes_; }  // with the window
  // With states in host memory: the travels of a step and of an evaluation, and where the window's places are in the
  // arena. Visits of a step are the blocks of each pass of each group, those of an evaluation all blocks.
  const StateTravel& step_travel() const { return step_travel_; }
  const StateTravel& evaluation_travel() const { return evaluation_travel_; }
  int64_t window_place(size_t place) const { return window_ + static_cast<int64_t>(place) * place_bytes_; }
  // All graphs; those of an inner list run side by side.
  std::vector<std::vector<PlannedGraph>> graphs() const;
  int64_t launches() const;  // of kernels in a step

 private:
  void plan_group(size_t group, const std::vector<size_t>& members);
  bool plan_flat(size_t group, const std::vector<size_t>& members);
  void plan_each(size_t group, const std::vector<size_t>& members);
  void cut_flat(UpdateBlock whole, const Optimizer& rule, const std::vector<std::vector<std::string>>& known);
  void place_states(UpdateBlock& block);
  void plan_window();
  void finish(size_t group);
  void spread(size_t group);
  int64_t take_number(int64_t count);

  std::vector<TrainedTensor> tensors_;
  std::vector<UpdateBlock> blocks_;
  std::vector<GroupPlan> groups_;
  StatePlace place_;
  int64_t part_;
  int64_t state_bytes_ = 0, group_state_bytes_ = 0, number_bytes_ = 0, arena_bytes_ = 0;
  int64_t window_ = 0, place_bytes_ = 0;
  StateTravel step_travel_, evaluation_travel_;
};

}  // namespace lh
