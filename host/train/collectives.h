// What the devices of the processes of a run do together within steps, in a queue beside the operations where they pass
// memory to each other directly: sums of gradients (gradient_sum.h), and weights of which each has a part. All ranks
// come to these in the same order. A thread looks after them: a device that waits for a rank which is lost would wait
// for ever, and the host with it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "run/device.h"
#include "run/shared_weights.h"
#include "world/device_group.h"
#include "world/world.h"

namespace lh {

class Collectives final : public SharedWeights {
 public:
  // [together] device_name: of `device`.
  Collectives(World& world, Device& device, const std::string& device_name);
  ~Collectives() override;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  World& world() { return world_; }
  DeviceGroup& group() { return *group_; }
  // Whose compute queue the work of the group is in.
  Device& worker() { return queue_ ? *queue_ : device_; }
  // [together] The parts of weights are in this memory, which all ranks have laid out as Weights does. Where the
  // devices reach each other's, weights are copied from there, beside the operations and the sums, and nobody waits for
  // anybody.
  void share_weights(const std::byte* memory);
  Device& sender() override { return parts_.empty() ? worker() : device_; }
  lk_queue queue() const override { return parts_.empty() ? LK_COMPUTE : LK_TRANSFER; }
  bool reaches() const override { return !parts_.empty(); }
  void bring(const std::byte* kept, std::byte* weight, int64_t bytes) override;
  void offer(const std::byte* weight, int64_t bytes) override;
  // What the one was told to do before comes before what the other is told from here on.
  void to_worker() { hand_over(device_, worker()); }
  void from_worker() { hand_over(worker(), device_); }
  // Are they part of what the device is told to do for a step, and so of its recording?
  bool within_step() const { return device_.is_cpu() || group_->queued(); }

  // [together] This rank begins with a part of a step. How long a step takes that it computes says how long it will
  // wait for others.
  void come(bool computes);
  void done();  // a step of this rank is through

  // float32 [1] in host memory that the device can read: 0, and NaN from when what comes from other ranks cannot be
  // relied on any more. Whatever a step does to the trained tensors depends on it.
  const void* trust() const { return trust_.data(); }
  void wait(const Event& event);  // of a step that others have a part of
  // Throws as World::look does, or RankLost, where trust has gone.
  [[noreturn]] void raise();

 private:
  void hand_over(Device& from, Device& to);
  void call(const std::function<void()>& group_does);  // for weights
  void watch();
  double limit() const;

  World& world_;
  Device& device_;
  std::unique_ptr<Device> queue_;  // another context, whose compute queue is that of a queued group
  std::unique_ptr<DeviceGroup> group_;
  std::vector<const std::byte*> parts_;  // by rank: its memory of weights, where all can be read from all
  StagingMemory trust_;
  Event handed_;

  double began_ = 0, longest_ = 0;    // this step, and the longest that one took, in seconds
  std::atomic<double> deadline_ = 0;  // of the step that is waited for; 0: none
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::string trouble_;  // why trust has gone, where the world does not say it
  std::thread watch_;
};

}  // namespace lh
