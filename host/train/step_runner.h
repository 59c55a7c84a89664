// Training steps on the device: memory, the recorded graph of every batch shape, and the steps in flight.
//
// A step is handed over with enqueue() and looked at with collect(), later: the device works on one while the host
// makes the inputs of the next. Everything between (gradients, norm, loss scale, step counter) stays on the device.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "run/feed.h"
#include "run/recording.h"
#include "run/workspace.h"
#include "train/gradient_sum.h"
#include "train/train_plan.h"

namespace lh {

struct RunnerOptions {
  int64_t accumulation = 1;            // micro-batches of a step, of all processes
  Collectives* collectives = nullptr;  // of the processes that train together; none: this one alone
  bool in_order = true;                // sums over processes are those of one process, to the bit
  DType travel = DType::f32;           // of gradients between them
  double max_grad_norm = 1;
  bool loss_scaling = false;  // for float16
};

struct MicroBatch {
  TrainStep* step = nullptr;  // none: this process had no part of the step
  StepInputs inputs = {};
};

struct StepResult {
  float loss = 0, grad_norm = 0;
  std::array<float, 2> loss_scale{};  // after the step: scale, clean steps
  int64_t updates = 0;                // applied so far
  int64_t averaged = 0;               // updates of the average of the weights
  MicroBatch last;                    // of the step, for a diagnosis
};

class StepRunner {
 public:
  static constexpr int64_t most_in_flight = 2;

  // Takes the memory of the plan; the weights are already there.
  StepRunner(Device& device, TrainPlan& plan, const Weights& weights, const RunnerOptions& options);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  std::byte* arena() const { return arena_.data(); }  // free to use while no step is in flight
  Update& update() { return *update_; }
  // From the next step on; no step may be in flight. Its states have to be set: Update::initialise, or load_optimizer.
  void use(std::shared_ptr<const OptimizerSetup> setup);
  void initialise();     // states of the optimizer and the average as they are before the first step; p must be there
  void start_average();  // anew, as a copy of the weights as they are; where the plan has one
  void refresh_shown();  // brings the section that is saved and sampled with up to date
  void set_state(int64_t updates, const std::array<float, 2>& loss_scale);
  void set_averaged(int64_t updates);  // of the average
  // One optimizer step with the learning rate of each group. `next(micro)` makes the inputs of each of its
  // micro-batches.
  void enqueue(const std::vector<double>& lr, const std::function<MicroBatch(int64_t micro)>& next);
  // [together] How long the sums over all processes take by themselves, in seconds; no step may be in flight.
  double sum_seconds();
  int64_t in_flight() const { return launched_ - collected_; }
  // Waits for the oldest step in flight. Throws as World::look does, after it has given the step up, where other
  // processes were lost before it was whole: it has then changed nothing.
  StepResult collect();

 private:
  // What a recording has in it.
  struct Work {
    TrainStep* step = nullptr;      // forward and backward pass
    bool onto = false;              // loss and gradients are added to what is there
    std::optional<SumRound> round;  // then they are added up with those of the other processes
    bool update = false;
    auto operator<=>(const Work&) const = default;
  };
  const char* gradients() const;
  Recording& recording(const Work& work);
  void join_others();
  void warm_together();
  void forward_backward(TrainStep& step, bool onto);
  void work(const Work& work);
  void clip_and_update();
  void send(const std::vector<double>& lr, const MicroBatch& batch);
  MicroBatch enqueue_together(const std::vector<double>& lr, const std::function<MicroBatch(int64_t micro)>& next);
  const char* averaged() const;

  Device& device_;
  TrainPlan& plan_;
  RunnerOptions options_;
  DeviceMemory arena_;
  Workspace workspace_;
  Feed feed_;
  DeviceMemory scalars_;
  StagingMemory results_;  // the scalars after each of the steps in flight
  StagingMemory host_;     // what the steps offload
  std::vector<std::unique_ptr<Event>> landed_;
  std::unique_ptr<Update> update_;
  std::set<const TrainStep*> warm_;   // ran once without being recorded
  std::unique_ptr<GradientSum> sum_;  // where there are other processes
  // Of each step, by node: how many of the trained tensors, in the order of the sums, have their gradient behind it.
  std::map<const TrainStep*, std::vector<size_t>> gradients_there_;
  std::map<Work, std::unique_ptr<Recording>> recordings_;  // they end before what they recorded
  std::deque<MicroBatch> flying_;
  int64_t launched_ = 0, collected_ = 0;
};

}  // namespace lh
