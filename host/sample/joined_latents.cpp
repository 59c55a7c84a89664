#include "sample/joined_latents.h"

#include <algorithm>

#include "encode/latent_shape.h"

namespace lh {

JoinedLatents::JoinedLatents(const Recipe& recipe, const Bucket& bucket) {
  const LatentSpec& latents = recipe.latents;
  parts_.push_back(latent_shape(latents, latent_sizes(latents, bucket), 1, latents.channels));
  if (bucket.sound > 0) parts_.push_back({1, bucket.sound, recipe.sound->channels});
}

Shape JoinedLatents::shape() const {
  if (parts_.size() == 1) return parts_[0];
  int64_t count = 0;
  for (const Shape& part : parts_) count += part.numel();
  return {1, count};
}

std::vector<HostTensor> JoinedLatents::apart(const HostTensor& x) const {
  if (parts_.size() == 1) return {x};
  std::vector<HostTensor> parts;
  std::span<const float> rest = x.as<float>();
  for (const Shape& shape : parts_) {
    const auto count = static_cast<size_t>(shape.numel());
    HostTensor& part = parts.emplace_back(Desc{DType::f32, shape});
    std::ranges::copy(rest.first(count), part.as<float>().begin());
    rest = rest.subspan(count);
  }
  return parts;
}

HostTensor JoinedLatents::together(std::vector<HostTensor> parts) const {
  if (parts_.size() == 1) return std::move(parts[0]);
  HostTensor x(Desc{DType::f32, shape()});
  auto at = x.as<float>().begin();
  for (const HostTensor& part : parts) at = std::ranges::copy(part.as<float>(), at).out;
  return x;
}

}  // namespace lh
