// Which samples make up which batch: a pure function of (seed, epoch), so that a step number alone says where a run
// stands.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace lh {

struct Batch {
  Bucket bucket;
  std::vector<int64_t> samples;  // indices into Dataset::samples; always batch_size of them
};

class BatchOrder {
 public:
  BatchOrder(const Dataset& dataset, int64_t batch_size, uint64_t seed);
  int64_t batches_per_epoch() const { return per_epoch_; }
  // Batch number `index` of the run. Within an epoch every sample (repeated num_repeats times) comes once; the last
  // batch of a bucket is filled up from the bucket's beginning.
  const Batch& at(int64_t index);

 private:
  std::vector<Batch> epoch(int64_t number) const;
  const Dataset& dataset_;
  int64_t batch_size_;
  uint64_t seed_;
  int64_t per_epoch_ = 0;
  int64_t cached_ = -1;
  std::vector<Batch> batches_;
};

}  // namespace lh
