#include "train/collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "core/clock.h"
#include "core/signals.h"
#include "train/device_groups.h"

namespace lh {
namespace {

constexpr double patience = 20;        // seconds that a rank may be behind the others at a step,
constexpr double times_own_step = 10;  // and so many times what this one took for the longest
constexpr auto between_looks = std::chrono::milliseconds(50);

}  // namespace

Collectives::Collectives(World& world, Device& device, const std::string& device_name)
    : world_(world),
      device_(device),
      queue_(device.is_cpu() ? nullptr : std::make_unique<Device>(device_name)),
      group_(open_device_group(world, device, worker())),
      trust_(device, sizeof(float)),
      handed_(device) {
  std::memset(trust_.data(), 0, sizeof(float));
  if (group_->queued())
    watch_ = std::thread([this] { watch(); });
  else
    queue_.reset();
}

Collectives::~Collectives() {
  ending_ = true;
  if (watch_.joinable()) watch_.join();
}

void Collectives::hand_over(Device& from, Device& to) {
  if (&from == &to) return;
  handed_.record(from, LK_COMPUTE);
  handed_.hold(to, LK_COMPUTE);
}

void Collectives::share_weights(const std::byte* memory) {
  const std::vector<std::string> offers = world_.gather(group_->offer(memory));  // all have read theirs
  std::vector<const std::byte*> parts = group_->open(memory, offers);
  if (!world_.any(parts.empty()))
    parts_ = std::move(parts);
  else if (group_->queued())
    group_->take_less();  // weights come while the device computes
}

void Collectives::call(const std::function<void()>& group_does) {
  try {
    group_does();
  } catch (const std::runtime_error& e) {
    if (dynamic_cast<const Error*>(&e) == nullptr) raise();
    throw;
  }
}

void Collectives::bring(const std::byte* kept, std::byte* weight, int64_t bytes) {
  const WeightShare share{world_.rank(), world_.size()};
  const auto copy = [&](std::byte* to, const std::byte* from, int64_t count) {
    if (count > 0) sender().check(lk_copy_async(sender().context(), queue(), to, from, count), "a part of a weight");
  };
  const auto there = [&](int rank) {
    return parts_[static_cast<size_t>(rank)] + (kept - parts_[static_cast<size_t>(world_.rank())]);
  };
  if (share.deals()) {
    const int other = 1 - world_.rank();
    if (reaches())
      copy(weight, there(other), bytes);
    else
      call([&] { group_->exchange({}, {{.rank = other, .data = weight, .bytes = bytes}}); });
    return;
  }
  const int64_t part = share.part(bytes), rest = share.rest(bytes);
  if (reaches())
    for (int r = 0; r < world_.size(); ++r) copy(weight + r * part, there(r), part);
  else if (part > 0)
    call([&] { group_->gather(kept, weight, part); });
  copy(weight + bytes - rest, kept + part, rest);
}

void Collectives::offer(const std::byte* weight, int64_t bytes) {
  const DevicePiece given{.rank = 1 - world_.rank(), .data = const_cast<std::byte*>(weight), .bytes = bytes};
  call([&] { group_->exchange({given}, {}); });
}

// A rank without a part of the step has nothing to compare with: it waits for as long as the others are heard.
double Collectives::limit() const { return longest_ > 0 ? patience + times_own_step * longest_ : 0; }

void Collectives::come(bool computes) {
  group_->wait_at_most(limit());
  if (group_->queued()) {  // who does not come is known by name here, and not in the queue
    auto nothing = std::make_shared<Parcel>();
    for (Pieces* pieces : {&nothing->out, &nothing->in}) {
      pieces->at.assign(static_cast<size_t>(world_.size()), 0);
      pieces->bytes.assign(static_cast<size_t>(world_.size()), 0);
    }
    world_.exchange(nothing, limit());
  }
  if (computes && began_ == 0) began_ = seconds_now();
}

void Collectives::done() {
  if (began_ > 0) longest_ = std::max(longest_, seconds_now() - began_);
  began_ = 0;
}

void Collectives::watch() {
  while (!ending_) {
    std::this_thread::sleep_for(between_looks);
    std::string trouble;
    bool seen = hurry_requested();
    try {
      world_.look();
      group_->look();
      if (const double deadline = deadline_; deadline > 0 && seconds_now() > deadline)
        trouble = "neither this GPU nor another ends its step";
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
    std::memcpy(trust_.data(), &none, sizeof none);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before the device goes on
    group_->abort();
    return;
  }
}

void Collectives::wait(const Event& event) {
  if (group_->queued() && limit() > 0) deadline_ = seconds_now() + limit();
  event.finish();
  deadline_ = 0;
}

void Collectives::raise() {
  // The word of a rank that has ended, or that it is gone, may come a moment after its device.
  constexpr double moment = 2;
  for (const double start = seconds_now(); seconds_now() - start < moment; std::this_thread::sleep_for(between_looks)) {
    check_hurry();
    world_.look();
  }
  const std::lock_guard lock(mutex_);
  throw RankLost(rank_lost, "lost the other processes: " + (trouble_.empty() ? "they do not answer" : trouble_));
}

}  // namespace lh
