// Where the processes of a run meet in a step: the gradients of their micro-batches become one sum, the same bits on
// all of them. What follows (clipping, loss scale, update) sees only the sum, so it is decided alike everywhere.
//
//   total = share g[0] + share g[1] + ...     in the order of the ranks, onto what the total was, as lk_accumulate adds
//
// That is the sum that one process makes of these micro-batches one after another, to the bit. Each rank adds up its
// own part of the tensors, from all others, and gives the result to all: twice the bytes of the gradients travel for
// each rank, whatever their number.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "run/device.h"
#include "world/world.h"

namespace lh {

// On the device, float32: of the micro-batch just done, and the sums over a step.
struct StepGradients {
  std::byte *gradient = nullptr, *gradient_sum = nullptr;
  int64_t elements = 0;
  std::byte *loss = nullptr, *loss_sum = nullptr;  // one element each
};

// Which micro-batches are added: one of each of the first `ranks` ranks.
struct SumRound {
  int64_t ranks = 1;
  float share = 1;
  bool first = true;  // of a step: sums begin
  bool last = true;   // then sums are on the device of every rank
};

class GradientSum {
 public:
  virtual ~GradientSum() = default;
  // This rank begins with a micro-batch: how long it takes says how long it will wait for others.
  virtual void begin() {}
  // [together] Work that was handed to the device before is done first, what is handed over afterwards sees the sums.
  virtual void add(const StepGradients& values, const SumRound& round) = 0;
};

// Through the memory of the host and World::exchange, whatever the device.
class HostGradientSum final : public GradientSum {
 public:
  HostGradientSum(World& world, Device& device);
  void begin() override;
  void add(const StepGradients& values, const SumRound& round) override;

 private:
  struct Bucket {
    int64_t begin = 0, elements = 0;
    // The part of it that a rank adds up.
    int64_t part(int64_t rank, int64_t ranks) const;
  };
  void collect(const Bucket& bucket, const StepGradients& values, const SumRound& round);
  void give(const Bucket& bucket, const StepGradients& values);
  void add_loss(const StepGradients& values, const SumRound& round);
  void accumulate(const std::byte* x, float* total, int64_t count, float share, bool onto);
  double limit() const;

  World& world_;
  Device& device_;
  Device host_;
  std::vector<float> own_;  // this rank's part of every bucket, one after another
  size_t own_at_ = 0;       // where that of the current bucket begins
  float loss_ = 0;
  double began_ = 0, longest_ = 0;  // this micro-batch, and the longest that one took, in seconds
};

}  // namespace lh
