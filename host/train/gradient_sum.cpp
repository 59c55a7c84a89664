// Buckets of a few megabytes, so that little memory is needed beside the gradients.
#include "train/gradient_sum.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace lh {
namespace {

constexpr int64_t bucket_elements = 4 << 20;
constexpr int64_t grain = 16;          // parts begin at whole cache lines
constexpr double patience = 20;        // seconds that a rank may be behind the others at a step,
constexpr double times_own_step = 10;  // and so many times what this one took for the longest
constexpr int64_t size = sizeof(float);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

int64_t HostGradientSum::Bucket::part(int64_t rank, int64_t ranks) const {
  const int64_t grains = (elements + grain - 1) / grain;
  return std::min(elements, grains * rank / ranks * grain);
}

HostGradientSum::HostGradientSum(World& world, Device& device) : world_(world), device_(device), host_("cpu") {}

void HostGradientSum::begin() { began_ = now(); }

// A rank without a part of the step has nothing to compare with: it waits for as long as the others are heard.
double HostGradientSum::limit() const { return longest_ > 0 ? patience + times_own_step * longest_ : 0; }

void HostGradientSum::accumulate(const std::byte* x, float* total, int64_t count, float share, bool onto) {
  if (count == 0) return;
  const Desc desc{DType::f32, {count}};
  const lk_accumulate_params params{.x = kernel_tensor(desc, const_cast<std::byte*>(x)),
                                    .total = kernel_tensor(desc, total),
                                    .alpha = share,
                                    .accumulate = onto};
  host_.check(lk_accumulate(host_.context(), &params), "sum of the gradients");
}

// From each rank that has a gradient its values of this rank's part.
void HostGradientSum::collect(const Bucket& bucket, const StepGradients& values, const SumRound& round) {
  const int64_t ranks = world_.size(), rank = world_.rank();
  auto parcel = std::make_shared<Parcel>();
  Pieces &out = parcel->out, &in = parcel->in;
  const bool gives = rank < round.ranks;
  if (gives) {
    out.data.resize(static_cast<size_t>(bucket.elements * size));
    device_.check(
        lk_download(device_.context(), out.data.data(), values.gradient + bucket.begin * size, bucket.elements * size),
        "gradients");
  }
  const int64_t own = bucket.part(rank + 1, ranks) - bucket.part(rank, ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t begin = bucket.part(r, ranks), end = bucket.part(r + 1, ranks);
    out.at.push_back(gives ? begin * size : 0);
    out.bytes.push_back(gives ? (end - begin) * size : 0);
    in.at.push_back(std::min(r, round.ranks) * own * size);
    in.bytes.push_back(r < round.ranks ? own * size : 0);
  }
  in.data.resize(static_cast<size_t>(round.ranks * own * size));
  world_.exchange(parcel, limit());
  if (own_.size() < own_at_ + static_cast<size_t>(own)) own_.resize(own_at_ + static_cast<size_t>(own));
  for (int64_t r = 0; r < round.ranks; ++r)
    accumulate(in.data.data() + in.at[static_cast<size_t>(r)], own_.data() + own_at_, own, round.share,
               !round.first || r > 0);
}

// This rank's part of the sum to all, and theirs onto the device.
void HostGradientSum::give(const Bucket& bucket, const StepGradients& values) {
  const int64_t ranks = world_.size(), rank = world_.rank();
  const int64_t own = bucket.part(rank + 1, ranks) - bucket.part(rank, ranks);
  auto parcel = std::make_shared<Parcel>();
  Pieces &out = parcel->out, &in = parcel->in;
  const auto* mine = reinterpret_cast<const std::byte*>(own_.data() + own_at_);
  out.data.assign(mine, mine + own * size);
  out.at.assign(static_cast<size_t>(ranks), 0);
  out.bytes.assign(static_cast<size_t>(ranks), own * size);
  for (int64_t r = 0; r < ranks; ++r) {
    in.at.push_back(bucket.part(r, ranks) * size);
    in.bytes.push_back((bucket.part(r + 1, ranks) - bucket.part(r, ranks)) * size);
  }
  in.data.resize(static_cast<size_t>(bucket.elements * size));
  world_.exchange(parcel, limit());
  device_.check(
      lk_upload(device_.context(), values.gradient_sum + bucket.begin * size, in.data.data(), bucket.elements * size),
      "sum of the gradients");
}

void HostGradientSum::add_loss(const StepGradients& values, const SumRound& round) {
  float mine = 0;
  device_.check(lk_download(device_.context(), &mine, values.loss, size), "loss");
  const std::vector<std::string> all = world_.gather(std::string(reinterpret_cast<const char*>(&mine), size));
  for (int64_t r = 0; r < round.ranks; ++r)
    accumulate(reinterpret_cast<const std::byte*>(all[static_cast<size_t>(r)].data()), &loss_, 1, round.share,
               !round.first || r > 0);
  if (round.last) device_.check(lk_upload(device_.context(), values.loss_sum, &loss_, size), "loss");
}

void HostGradientSum::add(const StepGradients& values, const SumRound& round) {
  device_.synchronize();
  if (began_ > 0) longest_ = std::max(longest_, now() - began_);
  own_at_ = 0;
  for (Bucket bucket; bucket.begin < values.elements; bucket.begin += bucket_elements) {
    bucket.elements = std::min(bucket_elements, values.elements - bucket.begin);
    collect(bucket, values, round);
    if (round.last) give(bucket, values);
    own_at_ +=
        static_cast<size_t>(bucket.part(world_.rank() + 1, world_.size()) - bucket.part(world_.rank(), world_.size()));
  }
  add_loss(values, round);
  began_ = 0;
}

}  // namespace lh
