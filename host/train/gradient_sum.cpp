// Buckets of a few megabytes, so that little memory is needed beside the gradients.
#include "train/gradient_sum.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "core/signals.h"
#include "run/plan.h"
#include "train/device_groups.h"

namespace lh {
namespace {

constexpr int64_t bucket_elements = 4 << 20;
constexpr double patience = 20;        // seconds that a rank may be behind the others at a step,
constexpr double times_own_step = 10;  // and so many times what this one took for the longest
constexpr auto between_looks = std::chrono::milliseconds(50);
constexpr int64_t size = sizeof(float);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int64_t losses_at(int64_t elements, int64_t ranks) {
  return placed_bytes(most_in_part(std::min(elements, bucket_elements), ranks) * ranks * size);
}

}  // namespace

int64_t GradientSum::staging_bytes(int64_t elements, int64_t ranks) {
  return ranks == 1 ? 0 : losses_at(elements, ranks) + placed_bytes(ranks * size);
}

GradientSum::GradientSum(World& world, Device& device, const std::string& device_name, const StepGradients& memory,
                         const std::vector<GradientRange>& tensors, bool in_order)
    : world_(world), device_(device), memory_(memory), in_order_(in_order), trust_(device, size) {
  if (!device.is_cpu()) queue_ = std::make_unique<Device>(device_name);
  group_ = open_device_group(world, device, worker());
  if (!group_->queued()) queue_.reset();
  int64_t elements = 0;
  for (const GradientRange& tensor : tensors) elements += tensor.elements;
  buckets_ = gradient_buckets(tensors, bucket_elements);
  staging_ = DeviceMemory(device, staging_bytes(elements, world.size()), "gradients of other processes");
  std::memset(trust_.data(), 0, size);
  device.check(lk_event_create(device.context(), &event_), "event");
  if (!group_->queued()) return;
  watch_ = std::thread([this] { watch(); });
  // Ways between the devices are opened by the first calls, which must not be recorded.
  for (const bool last : {false, true}) {
    begin({.ranks = world.size(), .share = 0, .first = !last, .last = last});
    end();
  }
  device.synchronize();
  worker().synchronize();
}

GradientSum::~GradientSum() {
  ending_ = true;
  if (watch_.joinable()) watch_.join();
  group_.reset();
  lk_event_destroy(device_.context(), event_);
}

// A rank without a part of the step has nothing to compare with: it waits for as long as the others are heard.
double GradientSum::limit() const { return longest_ > 0 ? patience + times_own_step * longest_ : 0; }

void GradientSum::come(bool computes) {
  group_->wait_at_most(limit());
  if (group_->queued()) {  // who does not come is known by name here, and not in the queue
    auto nothing = std::make_shared<Parcel>();
    for (Pieces* pieces : {&nothing->out, &nothing->in}) {
      pieces->at.assign(static_cast<size_t>(world_.size()), 0);
      pieces->bytes.assign(static_cast<size_t>(world_.size()), 0);
    }
    world_.exchange(nothing, limit());
  }
  if (computes && began_ == 0) began_ = now();
}

void GradientSum::done() {
  if (began_ > 0) longest_ = std::max(longest_, now() - began_);
  began_ = 0;
}

void GradientSum::hand_over(Device& from, Device& to) {
  if (&from == &to) return;
  from.check(lk_event_record(from.context(), event_, LK_COMPUTE), "gradients for other processes");
  to.check(lk_event_wait(to.context(), event_, LK_COMPUTE), "gradients for other processes");
}

void GradientSum::accumulate(const std::byte* x, std::byte* total, int64_t count, float share, bool onto) {
  const Desc desc{DType::f32, {count}};
  const lk_accumulate_params params{.x = kernel_tensor(desc, const_cast<std::byte*>(x)),
                                    .total = kernel_tensor(desc, total),
                                    .alpha = share,
                                    .accumulate = onto};
  worker().check(lk_accumulate(worker().context(), &params), "sum of the gradients");
}

void GradientSum::begin(const SumRound& round) {
  round_ = round;
  next_ = 0;
}

void GradientSum::there(size_t tensors) {
  for (; next_ < buckets_.size() && buckets_[next_].after <= tensors; ++next_) reduce(buckets_[next_]);
}

void GradientSum::end() {
  there(std::numeric_limits<size_t>::max());
  hand_over(device_, worker());
  reduce_loss();
  hand_over(worker(), device_);
}

void GradientSum::reduce(const GradientBucket& bucket) {
  hand_over(device_, worker());
  if (in_order_ || !group_->queued())
    reduce_in_order(bucket);
  else
    reduce_in_any_order(bucket);
}

void GradientSum::reduce_in_order(const GradientBucket& bucket) {
  const int64_t ranks = world_.size(), rank = world_.rank();
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
  group_->exchange(give, take);
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
  group_->exchange(give, take);
}

void GradientSum::reduce_in_any_order(const GradientBucket& bucket) {
  std::vector<Piece> sums;
  for (const GradientRange& range : bucket.ranges) {
    std::byte* const total = memory_.total + range.begin * size;
    if (gives()) {
      accumulate(memory_.gradient + range.begin * size, total, range.elements, round_.share, !round_.first);
    } else if (round_.first) {
      const lk_fill_params none{.y = kernel_tensor({DType::f32, {range.elements}}, total), .value = 0};
      worker().check(lk_fill(worker().context(), &none), "sum of the gradients");
    }
    sums.push_back({.rank = 0, .data = total, .bytes = range.elements * size});
  }
  if (round_.last) group_->sum(sums);
}

// Of all givers to all, which add them up alike.
void GradientSum::reduce_loss() {
  const int64_t ranks = world_.size(), rank = world_.rank();
  std::byte* const losses = staging_.data() + staging_.bytes() - placed_bytes(ranks * size);
  std::vector<Piece> give, take;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r == rank) continue;
    if (gives()) give.push_back({static_cast<int>(r), memory_.loss, size});
    if (r < round_.ranks) take.push_back({static_cast<int>(r), losses + r * size, size});
  }
  group_->exchange(give, take);
  for (int64_t r = 0; r < round_.ranks; ++r)
    accumulate(r == rank ? memory_.loss : losses + r * size, memory_.loss_total, 1, round_.share,
               !round_.first || r > 0);
}

// A device that waits for a rank which is lost would wait for ever, and the host with it.
void GradientSum::watch() {
  while (!ending_) {
    std::this_thread::sleep_for(between_looks);
    std::string trouble;
    bool seen = hurry_requested();
    try {
      world_.look();
      group_->look();
      const double deadline = deadline_;
      if (deadline > 0 && now() > deadline)
        trouble = fmt::format("a GPU: it does not end its step, nor do others, after {:.0f} seconds", limit());
    } catch (const Error&) {
      seen = true;  // the world says it again
    } catch (const std::exception& e) {
      trouble = e.what();
    }
    if (!seen && trouble.empty()) continue;
    {
      const std::lock_guard lock(mutex_);
      trouble_ = trouble;
    }
    const float none = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(trust_.data(), &none, size);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    lost_ = true;
    group_->abort();
    return;
  }
}

void GradientSum::wait(const Event& event) {
  if (group_->queued() && limit() > 0) deadline_ = now() + limit();
  event.finish();
  deadline_ = 0;
}

void GradientSum::raise() {
  check_hurry();
  // The word of a rank that has ended, or that it is gone, may come a moment after its device.
  const double start = now();
  while (now() - start < 2) {
    world_.look();
    std::this_thread::sleep_for(between_looks);
  }
  const std::lock_guard lock(mutex_);
  throw RankLost(rank_lost, "lost the other processes: " + (trouble_.empty() ? "they do not answer" : trouble_));
}

}  // namespace lh
