// Where the processes of a run meet in a step: the gradients of their micro-batches become one sum, the same bits on
// all of them. What follows (clipping, loss scale, update) sees only the sum, so it is decided alike everywhere.
//
//   total = share g[0] + share g[1] + ...     in the order of the ranks, onto what the total was, as lk_accumulate adds
//
// That is the sum that one process makes of these micro-batches one after another, to the bit. Each rank adds up its
// part of every bucket of tensors, from all others, and gives the result to all: twice the bytes of the gradients
// travel for each rank, whatever their number. They may travel as bfloat16, in half the bytes: then each g, also that
// of the rank which adds, and the total at the end of a step are rounded to it, and added in float32 all the same. So
// the bits are still those of any other number of processes, but not of one. Where the devices pass memory to each
// other in a queue (device_groups.h), all of it is part of the recorded step, and a bucket is on its way while the
// backward pass computes the next; unless the way is so fast that the multiprocessors it takes from the products cost
// more than waiting does.
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
  // one process, to the bit; otherwise the library of a queued group may add as it likes, and less travels. travel: the
  // type of gradients on their way, float32 or bfloat16.
  GradientSum(Collectives& collectives, Device& device, const StepGradients& memory,
              const std::vector<GradientRange>& tensors, bool in_order, DType travel = DType::f32);

  // Device memory that it takes, for so many trained elements.
  static int64_t staging_bytes(int64_t elements, int64_t ranks, DType travel);

  // Does it go on beside the backward pass?
  bool beside() const { return beside_; }
  // [together] A round: begin, then how many of the tensors are there, as often as is known, then end. Operations that
  // follow see the sums.
  void begin(const SumRound& round);
  void there(size_t tensors);
  void end();

 private:
  void open_ways();
  bool pays_beside(Device& device);
  void reduce_up_to(size_t tensors);
  void reduce(const GradientBucket& bucket);
  void reduce_in_order(const GradientBucket& bucket);
  void reduce_in_any_order(const GradientBucket& bucket);
  void reduce_loss();
  void cast(const lk_tensor& x, const lk_tensor& y);
  void accumulate(const lk_tensor& x, std::byte* total, float share, bool onto);
  bool rounds() const { return travel_ != DType::f32; }
  // These elements of a section, to where a bucket is rounded and from there, from its element `at` on.
  void round(const std::vector<GradientRange>& ranges, int64_t at, std::byte* section);
  void widen(const std::vector<GradientRange>& ranges, int64_t at, std::byte* section);
  // The part of a rank as it travels: in this section, or rounded.
  std::vector<DevicePiece> part_on_its_way(const GradientBucket& bucket, int64_t rank, std::byte* section) const;
  bool gives() const { return collectives_.world().rank() < round_.ranks; }

  Collectives& collectives_;
  StepGradients memory_;
  bool in_order_;
  DType travel_;
  std::vector<GradientBucket> buckets_;
  DeviceMemory staging_;
  std::byte *rounded_ = nullptr, *losses_ = nullptr;  // in it, behind what comes from each rank
  bool beside_ = true;                                // the backward pass
  SumRound round_;
  size_t next_ = 0;  // bucket of the round
};

}  // namespace lh
