// Where the processes of a run meet in a step: the gradients of their micro-batches become one sum, the same bits on
// all of them. What follows (clipping, loss scale, update) sees only the sum, so it is decided alike everywhere.
//
//   total = share g[0] + share g[1] + ...     in the order of the ranks, onto what the total was, as lk_accumulate adds
//
// That is the sum that one process makes of these micro-batches one after another, to the bit. Each rank adds up its
// part of every bucket of tensors, from all others, and gives the result to all: twice the bytes of the gradients
// travel for each rank, whatever their number. Where the devices pass memory to each other in a queue
// (device_groups.h), a bucket is on its way while the backward pass computes the next, and all of it is part of the
// recorded step.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "run/device.h"
#include "train/gradient_buckets.h"
#include "world/device_group.h"
#include "world/world.h"

namespace lh {

// On the device, float32: of the micro-batch just done, and the sums over a step.
struct StepGradients {
  std::byte *gradient = nullptr, *total = nullptr;   // sections of the trained tensors
  std::byte *loss = nullptr, *loss_total = nullptr;  // one element each
};

// Which micro-batches are added: one of each of the first `ranks` ranks.
struct SumRound {
  int64_t ranks = 1;
  float share = 1;
  bool first = true;  // of a step: sums begin
  bool last = true;   // then sums are on the device of every rank
  auto operator<=>(const SumRound&) const = default;
};

class GradientSum {
 public:
  // tensors: in the order in which the backward pass ends them, the same on all ranks. in_order: the sum of one
  // process, to the bit; otherwise the library of a queued group may add as it likes, and less travels. device_name: of
  // `device`.
  GradientSum(World& world, Device& device, const std::string& device_name, const StepGradients& memory,
              const std::vector<GradientRange>& tensors, bool in_order);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // Device memory that it takes, for so many trained elements.
  static int64_t staging_bytes(int64_t elements, int64_t ranks);
  // Is it part of what the device is told to do for a step, and so of its recording? Otherwise a round follows it.
  bool within_step() const { return device_.is_cpu() || group_->queued(); }
  const DeviceGroup& group() const { return *group_; }

  // [together] This rank begins with a round. How long a step takes that it computes says how long it will wait for
  // others.
  void come(bool computes);
  void done();  // a step of this rank is through
  // [together] A round: begin, then how many of the tensors are there, as often as is known, then end. Operations that
  // follow see the sums.
  void begin(const SumRound& round);
  void there(size_t tensors);
  void end();

  // float32 [1] in host memory that the device can read: 0, and NaN from when what comes from other ranks cannot be
  // relied on any more. Whatever a step does to the trained tensors depends on it.
  const void* trust() const { return trust_.data(); }
  // Waits, on behalf of this rank's queue, and throws as World::look does, or RankLost, where trust has gone.
  void wait(const Event& event);
  [[noreturn]] void raise();

 private:
  void reduce(const GradientBucket& bucket);
  void reduce_in_order(const GradientBucket& bucket);
  void reduce_in_any_order(const GradientBucket& bucket);
  void reduce_loss();
  void accumulate(const std::byte* x, std::byte* total, int64_t count, float share, bool onto);
  Device& worker() { return queue_ ? *queue_ : device_; }
  void hand_over(Device& from, Device& to);
  bool gives() const { return world_.rank() < round_.ranks; }
  void watch();
  double limit() const;

  World& world_;
  Device& device_;
  StepGradients memory_;
  bool in_order_;
  std::unique_ptr<Device> queue_;  // whose compute queue is that of a queued group
  std::unique_ptr<DeviceGroup> group_;
  std::vector<GradientBucket> buckets_;
  DeviceMemory staging_;
  StagingMemory trust_;
  lk_event* event_ = nullptr;
  SumRound round_;
  size_t next_ = 0;  // bucket of the round

  double began_ = 0, longest_ = 0;    // this step, and the longest that one took, in seconds
  std::atomic<double> deadline_ = 0;  // of the step that is waited for; 0: none
  std::atomic<bool> lost_ = false, ending_ = false;
  std::mutex mutex_;
  std::string trouble_;  // why trust has gone, where the world does not say it
  std::thread watch_;
};

}  // namespace lh
