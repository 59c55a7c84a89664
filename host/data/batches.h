// Which samples make up which batch: a pure function of (seed, epoch), so that a step number alone says where a run
// stands.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "data/dataset.h"

namespace lh {

struct Batch {
  BatchKind kind;
  std::vector<int64_t> samples;  // indices into Dataset::samples; always kind.size of them
};

class BatchOrder {
 public:
  // group: batches of one step, which processes may share. Those of a step are of one kind, as far as the batches of
  // a kind can be divided so: no process then waits for one that has more or larger images.
  BatchOrder(const Dataset& dataset, uint64_t seed, int64_t group = 1);
  int64_t batches_per_epoch() const { return per_epoch_; }
  // Batch number `index` of the run. Within an epoch every sample (repeated num_repeats times) comes once; the last
  // batch of a kind is filled up from the kind's beginning.
  const Batch& at(int64_t index);

 private:
  std::vector<Batch> epoch(int64_t number) const;
  std::vector<size_t> grouped(const std::vector<Batch>& batches, int64_t begun, Random& random) const;
  const Dataset& dataset_;
  uint64_t seed_;
  int64_t group_;
  int64_t per_epoch_ = 0;
  // The epochs that were asked for last: who looks ahead asks for two of them in turn.
  struct Epoch {
    int64_t number = -1;
    std::vector<Batch> batches;
  };
  Epoch latest_, before_;
};

}  // namespace lh
