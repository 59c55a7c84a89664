// Buckets, each of which is exchanged, added up and given back.
#include "train/gradient_sum.h"

#include <algorithm>
#include <limits>

#include "run/plan.h"

namespace lh {
namespace {

constexpr int64_t size = sizeof(float);

// Elements of a bucket that goes beside the backward pass: large ones, since each of their ranges is an operation of
// its own, and tensors that lie side by side are one range: so few that the last, which nothing hides, is a quarter of
// the whole, and none smaller than pays. A multiple of what kernels read at once, so that buckets are cut where they
// like it.
int64_t elements_beside(int64_t elements) {
  constexpr int64_t buckets = 4, least = 4 << 20, grain = 64;
  return std::min(elements, std::max(least, (elements + buckets * grain - 1) / (buckets * grain) * grain));
}

// Of one that is waited for: what is longer travels faster.
int64_t elements_waited_for(int64_t elements) {
  constexpr int64_t most = 48 << 20;
  return std::min(elements, std::max(most, elements_beside(elements)));
}

int64_t taken_bytes(int64_t elements, int64_t ranks, DType travel) {
  return placed_bytes(most_in_part(elements_waited_for(elements), ranks) * (ranks - 1) * dtype_size(travel));
}

int64_t rounded_bytes(int64_t elements, DType travel) {
  return travel == DType::f32 ? 0 : placed_bytes(elements_waited_for(elements) * dtype_size(travel));
}

}  // namespace

int64_t GradientSum::staging_bytes(int64_t elements, int64_t ranks, DType travel) {
  if (ranks == 1) return 0;
  return taken_bytes(elements, ranks, travel) + rounded_bytes(elements, travel) + placed_bytes(ranks * size);
}

GradientSum::GradientSum(Collectives& collectives, Device& device, const StepGradients& memory,
                         const std::vector<GradientRange>& tensors, bool in_order, DType travel)
    : collectives_(collectives), memory_(memory), in_order_(in_order), travel_(travel) {
  int64_t elements = 0;
  for (const GradientRange& tensor : tensors) elements += tensor.elements;
  const int64_t ranks = collectives.world().size();
  staging_ = DeviceMemory(device, staging_bytes(elements, ranks, travel), "gradients of other processes");
  rounded_ = staging_.data() + taken_bytes(elements, ranks, travel);
  losses_ = rounded_ + rounded_bytes(elements, travel);
  if (collectives.group().queued()) {
    buckets_ = gradient_buckets(tensors, elements_waited_for(elements));
    open_ways();
    beside_ = pays_beside(device);
    if (!beside_) return;
    collectives.group().take_less();
    open_ways();
  }
  buckets_ = gradient_buckets(tensors, elements_beside(elements));
}

// Between the devices, by the first calls, which must not be recorded.
void GradientSum::open_ways() {
  for (const bool last : {false, true}) {
    begin({.ranks = collectives_.world().size(), .share = 0, .first = !last, .last = last});
    end();
  }
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

void GradientSum::accumulate(const lk_tensor& x, std::byte* total, float share, bool onto) {
  const lk_accumulate_params params{
      .x = x, .total = kernel_tensor({DType::f32, {x.dims[0]}}, total), .alpha = share, .accumulate = onto};
  Device& worker = collectives_.worker();
  worker.check(lk_accumulate(worker.context(), &params), "sum of the gradients");
}

void GradientSum::round(const std::vector<GradientRange>& ranges, int64_t at, std::byte* section) {
  for (const GradientRange& range : ranges) {
    const Shape shape{range.elements};
    cast(kernel_tensor({DType::f32, shape}, section + range.begin * size),
         kernel_tensor({travel_, shape}, rounded_ + at * dtype_size(travel_)));
    at += range.elements;
  }
}

void GradientSum::widen(const std::vector<GradientRange>& ranges, int64_t at, std::byte* section) {
  for (const GradientRange& range : ranges) {
    const Shape shape{range.elements};
    cast(kernel_tensor({travel_, shape}, rounded_ + at * dtype_size(travel_)),
         kernel_tensor({DType::f32, shape}, section + range.begin * size));
    at += range.elements;
  }
}

void GradientSum::cast(const lk_tensor& x, const lk_tensor& y) {
  const lk_cast_params params{.x = x, .scale = {}, .y = y};
  Device& worker = collectives_.worker();
  worker.check(lk_cast(worker.context(), &params), "gradients on their way");
}

std::vector<DevicePiece> GradientSum::part_on_its_way(const GradientBucket& bucket, int64_t rank,
                                                      std::byte* section) const {
  const int64_t ranks = collectives_.world().size(), width = dtype_size(travel_);
  if (rounds()) {
    const GradientRange place = bucket.place(rank, ranks);
    if (place.elements == 0) return {};
    return {{.rank = 0, .data = rounded_ + place.begin * width, .bytes = place.elements * width}};
  }
  std::vector<DevicePiece> pieces;
  for (const GradientRange& range : bucket.part(rank, ranks))
    pieces.push_back({.rank = 0, .data = section + range.begin * size, .bytes = range.elements * size});
  return pieces;
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
  const int64_t own_place = bucket.place(rank, ranks).begin, width = dtype_size(travel_);
  const int64_t slot = most_in_part(bucket.elements, ranks) * width;
  const auto from = [&](int64_t other) { return staging_.data() + (other < rank ? other : other - 1) * slot; };
  std::vector<DevicePiece> give, take;
  const auto to = [](std::vector<DevicePiece>& pieces, int64_t other, std::byte* data, int64_t bytes) {
    pieces.push_back({.rank = static_cast<int>(other), .data = data, .bytes = bytes});
  };
  if (rounds() && gives()) round(bucket.ranges, 0, memory_.gradient);
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    if (gives())
      for (const DevicePiece& p : part_on_its_way(bucket, r, memory_.gradient)) to(give, r, p.data, p.bytes);
    if (r >= round_.ranks) continue;
    std::byte* at = from(r);
    for (const DevicePiece& p : part_on_its_way(bucket, rank, memory_.gradient)) {
      to(take, r, at, p.bytes);
      at += p.bytes;
    }
  }
  collectives_.group().exchange(give, take);
  for (int64_t r = 0; r < round_.ranks; ++r) {
    std::byte* at = r == rank ? rounded_ + own_place * width : from(r);
    for (const GradientRange& range : own) {
      std::byte* const x = r == rank && !rounds() ? memory_.gradient + range.begin * size : at;
      accumulate(kernel_tensor({travel_, {range.elements}}, x), memory_.total + range.begin * size, round_.share,
                 !round_.first || r > 0);
      at += range.elements * width;
    }
  }
  if (!round_.last) return;
  if (rounds()) round(own, own_place, memory_.total);
  give.clear();
  take.clear();
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    for (const DevicePiece& p : part_on_its_way(bucket, rank, memory_.total)) to(give, r, p.data, p.bytes);
    for (const DevicePiece& p : part_on_its_way(bucket, r, memory_.total)) to(take, r, p.data, p.bytes);
  }
  collectives_.group().exchange(give, take);
  if (rounds()) widen(bucket.ranges, 0, memory_.total);
}

void GradientSum::reduce_in_any_order(const GradientBucket& bucket) {
  std::vector<DevicePiece> sums;
  for (const GradientRange& range : bucket.ranges) {
    std::byte* const total = memory_.total + range.begin * size;
    if (gives()) {
      accumulate(kernel_tensor({DType::f32, {range.elements}}, memory_.gradient + range.begin * size), total,
                 round_.share, !round_.first);
    } else if (round_.first) {
      const lk_fill_params none{.y = kernel_tensor({DType::f32, {range.elements}}, total), .value = 0};
      Device& worker = collectives_.worker();
      worker.check(lk_fill(worker.context(), &none), "sum of the gradients");
    }
    sums.push_back({.rank = 0, .data = total, .bytes = range.elements * size});
  }
  if (!round_.last) return;
  if (!rounds()) return collectives_.group().sum(sums, Summand::float32);
  round(bucket.ranges, 0, memory_.total);
  collectives_.group().sum({{.rank = 0, .data = rounded_, .bytes = bucket.elements * dtype_size(travel_)}},
                           Summand::bfloat16);
  widen(bucket.ranges, 0, memory_.total);
}

// Of all givers to all, which add them up alike.
void GradientSum::reduce_loss() {
  const int64_t ranks = collectives_.world().size(), rank = collectives_.world().rank();
  std::vector<DevicePiece> give, take;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    if (gives()) give.push_back({static_cast<int>(r), memory_.loss, size});
    if (r < round_.ranks) take.push_back({static_cast<int>(r), losses_ + r * size, size});
  }
  collectives_.group().exchange(give, take);
  for (int64_t r = 0; r < round_.ranks; ++r)
    accumulate(kernel_tensor({DType::f32, {1}}, r == rank ? memory_.loss : losses_ + r * size), memory_.loss_total,
               round_.share, !round_.first || r > 0);
}

}  // namespace lh
