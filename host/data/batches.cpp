#include "data/batches.h"

#include <map>

#include "core/random.h"

namespace lh {

BatchOrder::BatchOrder(const Dataset& dataset, int64_t batch_size, uint64_t seed)
    : dataset_(dataset), batch_size_(batch_size), seed_(seed), per_epoch_(static_cast<int64_t>(epoch(0).size())) {}

std::vector<Batch> BatchOrder::epoch(int64_t number) const {
  std::map<Bucket, std::vector<int64_t>> by_bucket;
  for (size_t i = 0; i < dataset_.samples.size(); ++i)
    for (int64_t r = 0; r < dataset_.samples[i].repeats; ++r)
      by_bucket[dataset_.samples[i].bucket].push_back(static_cast<int64_t>(i));
  Random random(seed_, Purpose::order, static_cast<uint64_t>(number), 0);
  std::vector<Batch> batches;
  for (auto& [bucket, items] : by_bucket) {
    random.shuffle(items);
    const auto count = static_cast<int64_t>(items.size());
    for (int64_t start = 0; start < count; start += batch_size_) {
      Batch batch{bucket, {}};
      for (int64_t j = 0; j < batch_size_; ++j)
        batch.samples.push_back(items[static_cast<size_t>((start + j) % count)]);
      batches.push_back(std::move(batch));
    }
  }
  std::vector<int64_t> order(batches.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  random.shuffle(order);
  std::vector<Batch> shuffled;
  for (const int64_t i : order) shuffled.push_back(std::move(batches[static_cast<size_t>(i)]));
  return shuffled;
}

const Batch& BatchOrder::at(int64_t index) {
  const int64_t number = index / per_epoch_;
  if (number != cached_) {
    batches_ = epoch(number);
    cached_ = number;
  }
  return batches_[static_cast<size_t>(index % per_epoch_)];
}

}  // namespace lh
