// Where the processes of a run meet in a step: the gradients of their micro-batches become one sum, the same bits on
// all of them. What follows (clipping, loss scale, update) sees only the sum, so it is decided alike everywhere.
//
//   total = share g[0] + share g[1] + ...     in the order of the ranks, onto what the total was, as lk_accumulate adds
//
// That is the sum that one process makes of these micro-batches one after another, to the bit. Each rank adds up its
// part of every bucket of tensors, from all others, and gives the result to all: twice the bytes of the gradients
// travel for each rank, whatever their number. Where the devices pass memory to each other in a queue
// (device_groups.h), all of it is part of the recorded step, and a bucket is on its way while the backward pass
// computes the next; unless the way is so fast that the multiprocessors it takes from the products cost more than
// waiting does.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "run/device.h"
#include "train/collectives.h"
#include "train/gradient_buckets.h"

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
  // [together] tensors: in the order in which the backward pass ends them, the same on all ranks. in_order: the sum of
  // one process, to the bit; otherwise the library of a queued group may add as it likes, and less travels.
  GradientSum(Collectives& collectives, Device& device, const StepGradients& memory,
              const std::vector<GradientRange>& tensors, bool in_order);

  // Device memory that it takes, for so many trained elements.
  static int64_t staging_bytes(int64_t elements, int64_t ranks);

  // [together] A round: begin, then how many of the tensors are there, as often as is known, then end. Operations that
  // follow see the sums.
  void begin(const SumRound& round);
  void there(size_t tensors);
  void end();

 private:
  bool pays_beside(Device& device);
  void reduce_up_to(size_t tensors);
  void reduce(const GradientBucket& bucket);
  void reduce_in_order(const GradientBucket& bucket);
  void reduce_in_any_order(const GradientBucket& bucket);
  void reduce_loss();
  void accumulate(const std::byte* x, std::byte* total, int64_t count, float share, bool onto);
  bool gives() const { return collectives_.world().rank() < round_.ranks; }

  Collectives& collectives_;
  StepGradients memory_;
  bool in_order_;
  std::vector<GradientBucket> buckets_;
  DeviceMemory staging_;
  bool beside_ = true;  // the backward pass
  SumRound round_;
  size_t next_ = 0;  // bucket of the round
};

}  // namespace lh
