// Buckets, each of which is exchanged, added up and given back.
#include "train/gradient_sum.h"

#include <algorithm>
#include <limits>

#include "run/plan.h"

namespace lh {
namespace {

// Large ones, since each of their ranges is an operation of its own, and tensors that lie side by side are one range:
// so few that the last, which nothing hides, is a quarter of the whole, and none smaller than pays.
constexpr int64_t buckets_of_a_step = 4, least_elements = 4 << 20;
constexpr int64_t size = sizeof(float);

int64_t bucket_elements(int64_t elements) {
  return std::min(elements, std::max(least_elements, (elements + buckets_of_a_step - 1) / buckets_of_a_step));
}

int64_t losses_at(int64_t elements, int64_t ranks) {
  return placed_bytes(most_in_part(bucket_elements(elements), ranks) * ranks * size);
}

}  // namespace

int64_t GradientSum::staging_bytes(int64_t elements, int64_t ranks) {
  return ranks == 1 ? 0 : losses_at(elements, ranks) + placed_bytes(ranks * size);
}

GradientSum::GradientSum(Collectives& collectives, Device& device, const StepGradients& memory,
                         const std::vector<GradientRange>& tensors, bool in_order)
    : collectives_(collectives), memory_(memory), in_order_(in_order) {
  int64_t elements = 0;
  for (const GradientRange& tensor : tensors) elements += tensor.elements;
  buckets_ = gradient_buckets(tensors, bucket_elements(elements));
  const int64_t ranks = collectives.world().size();
  staging_ = DeviceMemory(device, staging_bytes(elements, ranks), "gradients of other processes");
  if (!collectives.group().queued()) return;
  // Ways between the devices are opened by the first calls, which must not be recorded.
  for (const bool last : {false, true}) {
    begin({.ranks = ranks, .share = 0, .first = !last, .last = last});
    end();
  }
  beside_ = pays_beside(device);
}

// Measured on two H200s with NVLink (docs/scale.md): sums of 1.5 to 5 ms cost 5 to 9 ms beside products that want all
// multiprocessors. The first rank decides for all.
bool GradientSum::pays_beside(Device& device) {
  constexpr double waited_for = 8e-3;  // seconds
  World& world = collectives_.world();
  device.synchronize();
  world.meet();
  const Event start(device), through(device);
  start.record(LK_COMPUTE);
  begin({.ranks = world.size(), .share = 0, .first = true, .last = true});
  end();
  through.record(LK_COMPUTE);
  device.synchronize();
  return world.of_first(through.seconds_since(start) > waited_for ? "beside" : "behind") == "beside";
}

void GradientSum::accumulate(const std::byte* x, std::byte* total, int64_t count, float share, bool onto) {
  const Desc desc{DType::f32, {count}};
  const lk_accumulate_params params{.x = kernel_tensor(desc, const_cast<std::byte*>(x)),
                                    .total = kernel_tensor(desc, total),
                                    .alpha = share,
                                    .accumulate = onto};
  Device& worker = collectives_.worker();
  worker.check(lk_accumulate(worker.context(), &params), "sum of the gradients");
}

void GradientSum::begin(const SumRound& round) {
  round_ = round;
  next_ = 0;
}

void GradientSum::there(size_t tensors) {
  if (beside_) reduce_up_to(tensors);
}

void GradientSum::reduce_up_to(size_t tensors) {
  for (; next_ < buckets_.size() && buckets_[next_].after <= tensors; ++next_) reduce(buckets_[next_]);
}

void GradientSum::end() {
  reduce_up_to(std::numeric_limits<size_t>::max());
  collectives_.to_worker();
  reduce_loss();
  collectives_.from_worker();
}

void GradientSum::reduce(const GradientBucket& bucket) {
  collectives_.to_worker();
  if (in_order_ || !collectives_.group().queued())
    reduce_in_order(bucket);
  else
    reduce_in_any_order(bucket);
}

void GradientSum::reduce_in_order(const GradientBucket& bucket) {
  const int64_t ranks = collectives_.world().size(), rank = collectives_.world().rank();
  const std::vector<GradientRange> own = bucket.part(rank, ranks);
  const int64_t slot = most_in_part(bucket.elements, ranks);
  std::vector<Piece> give, take;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    if (gives())
      for (const GradientRange& range : bucket.part(r, ranks))
        give.push_back({static_cast<int>(r), memory_.gradient + range.begin * size, range.elements * size});
    if (r >= round_.ranks) continue;
    std::byte* at = staging_.data() + r * slot * size;
    for (const GradientRange& range : own) {
      take.push_back({static_cast<int>(r), at, range.elements * size});
      at += range.elements * size;
    }
  }
  collectives_.group().exchange(give, take);
  for (int64_t r = 0; r < round_.ranks; ++r) {
    const std::byte* at = staging_.data() + r * slot * size;
    for (const GradientRange& range : own) {
      const std::byte* x = r == rank ? memory_.gradient + range.begin * size : at;
      accumulate(x, memory_.total + range.begin * size, range.elements, round_.share, !round_.first || r > 0);
      at += range.elements * size;
    }
  }
  if (!round_.last) return;
  give.clear();
  take.clear();
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    for (const GradientRange& range : own)
      give.push_back({static_cast<int>(r), memory_.total + range.begin * size, range.elements * size});
    for (const GradientRange& range : bucket.part(r, ranks))
      take.push_back({static_cast<int>(r), memory_.total + range.begin * size, range.elements * size});
  }
  collectives_.group().exchange(give, take);
}

void GradientSum::reduce_in_any_order(const GradientBucket& bucket) {
  std::vector<Piece> sums;
  for (const GradientRange& range : bucket.ranges) {
    std::byte* const total = memory_.total + range.begin * size;
    if (gives()) {
      accumulate(memory_.gradient + range.begin * size, total, range.elements, round_.share, !round_.first);
    } else if (round_.first) {
      const lk_fill_params none{.y = kernel_tensor({DType::f32, {range.elements}}, total), .value = 0};
      Device& worker = collectives_.worker();
      worker.check(lk_fill(worker.context(), &none), "sum of the gradients");
    }
    sums.push_back({.rank = 0, .data = total, .bytes = range.elements * size});
  }
  if (round_.last) collectives_.group().sum(sums);
}

// Of all givers to all, which add them up alike.
void GradientSum::reduce_loss() {
  const int64_t ranks = collectives_.world().size(), rank = collectives_.world().rank();
  std::byte* const losses = staging_.data() + staging_.bytes() - placed_bytes(ranks * size);
  std::vector<Piece> give, take;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    if (gives()) give.push_back({static_cast<int>(r), memory_.loss, size});
    if (r < round_.ranks) take.push_back({static_cast<int>(r), losses + r * size, size});
  }
  collectives_.group().exchange(give, take);
  for (int64_t r = 0; r < round_.ranks; ++r)
    accumulate(r == rank ? memory_.loss : losses + r * size, memory_.loss_total, 1, round_.share,
               !round_.first || r > 0);
}

}  // namespace lh
