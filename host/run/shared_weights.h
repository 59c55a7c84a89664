// Weights of which each process of a run has a part on its device: what a fetch node (passes/stream.h) reads then comes
// from all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lora_kernels.h"

namespace lh {

class Device;

// How processes share weights. Two have whole weights each, so that what one has is read where it lies and only the
// other's travels. Of more each has a part of every weight: as all of them want a weight at the same time, it comes
// from all at once, which is as much faster as there are others.
//
// Then a weight of `bytes` is `size` parts as long as each other, one for each rank, and what is left, which all have
// behind their own.
struct WeightShare {
  int rank = 0, size = 1;
  bool whole() const { return size == 1; }
  bool deals() const { return size == 2; }
  int64_t part(int64_t bytes) const { return whole() ? bytes : bytes / size / grain * grain; }
  int64_t rest(int64_t bytes) const { return whole() ? 0 : bytes - size * part(bytes); }
  int64_t kept(int64_t bytes) const { return part(bytes) + rest(bytes); }

 private:
  static constexpr int64_t grain = 16;
};

class SharedWeights {
 public:
  virtual ~SharedWeights() = default;
  // In which queue of which context weights come: of the same device as the operations, or of the context of the
  // operations itself.
  virtual Device& sender() = 0;
  virtual lk_queue queue() const = 0;
  // Can this device read what the others keep? Then they have nothing to do for it.
  virtual bool reaches() const = 0;
  // [together, unless it reaches] kept: where this rank has its part, as WeightShare says; where whole weights are
  // dealt, where it would be if the other's memory were this one's.
  virtual void bring(const std::byte* kept, std::byte* weight, int64_t bytes) = 0;
  // [together] A whole weight, while the other process brings it. Only where it does not reach.
  virtual void offer(const std::byte* weight, int64_t bytes) = 0;
};

}  // namespace lh
