#include "data/batches.h"

#include <algorithm>
#include <map>
#include <utility>

namespace lh {

namespace {

template <typename T>
void shuffle(std::vector<T>& items, Random& random) {
  std::vector<int64_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  random.shuffle(order);
  std::vector<T> shuffled;
  for (const int64_t i : order) shuffled.push_back(std::move(items[static_cast<size_t>(i)]));
  items = std::move(shuffled);
}

}  // namespace

BatchOrder::BatchOrder(const Dataset& dataset, uint64_t seed, int64_t group)
    : dataset_(dataset), seed_(seed), group_(group), per_epoch_(static_cast<int64_t>(epoch(0).size())) {}

// Steps of one kind, and what is left of the kinds in steps of several, in any order. An epoch may begin and end
// within a step; the part that belongs to a step of the epoch before (`begun` batches of it are done) comes first.
std::vector<size_t> BatchOrder::grouped(const std::vector<Batch>& batches, int64_t begun, Random& random) const {
  const auto group = static_cast<size_t>(group_);
  std::vector<std::vector<size_t>> steps;
  std::vector<size_t> rest;
  for (size_t first = 0, end = 0; first < batches.size(); first = end) {
    while (end < batches.size() && batches[end].kind == batches[first].kind) ++end;
    for (; first + group <= end; first += group) {
      std::vector<size_t>& step = steps.emplace_back();
      for (size_t i = 0; i < group; ++i) step.push_back(first + i);
    }
    for (; first < end; ++first) rest.push_back(first);
  }
  const size_t lead = std::min(batches.size(), (group - static_cast<size_t>(begun)) % group);
  shuffle(steps, random);
  while (rest.size() < lead) {
    rest.insert(rest.end(), steps.back().begin(), steps.back().end());
    steps.pop_back();
  }
  shuffle(rest, random);
  std::vector<size_t> order(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(lead)), last;
  for (size_t at = lead; at < rest.size(); at += group) {
    const size_t end = std::min(rest.size(), at + group);
    (end - at == group ? steps.emplace_back() : last)
        .assign(rest.begin() + static_cast<std::ptrdiff_t>(at), rest.begin() + static_cast<std::ptrdiff_t>(end));
  }
  shuffle(steps, random);
  for (const std::vector<size_t>& step : steps) order.insert(order.end(), step.begin(), step.end());
  order.insert(order.end(), last.begin(), last.end());
  return order;
}

std::vector<Batch> BatchOrder::epoch(int64_t number) const {
  std::map<BatchKind, std::vector<int64_t>> by_kind;
  for (size_t i = 0; i < dataset_.samples.size(); ++i)
    for (int64_t r = 0; r < dataset_.samples[i].repeats; ++r)
      by_kind[dataset_.samples[i].kind()].push_back(static_cast<int64_t>(i));
  Random random(seed_, Purpose::order, static_cast<uint64_t>(number), 0);
  std::vector<Batch> batches;
  for (auto& [kind, items] : by_kind) {
    random.shuffle(items);
    const auto count = static_cast<int64_t>(items.size());
    for (int64_t start = 0; start < count; start += kind.size) {
      Batch batch{kind, {}};
      for (int64_t j = 0; j < kind.size; ++j) batch.samples.push_back(items[static_cast<size_t>((start + j) % count)]);
      batches.push_back(std::move(batch));
    }
  }
  if (group_ == 1) {
    shuffle(batches, random);
    return batches;
  }
  const int64_t begun = number * static_cast<int64_t>(batches.size()) % group_;
  std::vector<Batch> ordered;
  for (const size_t i : grouped(batches, begun, random)) ordered.push_back(std::move(batches[i]));
  return ordered;
}

const Batch& BatchOrder::at(int64_t index) {
  const int64_t number = index / per_epoch_;
  if (number != latest_.number) std::swap(latest_, before_);
  if (number != latest_.number) latest_ = {number, epoch(number)};
  return latest_.batches[static_cast<size_t>(index % per_epoch_)];
}

}  // namespace lh
