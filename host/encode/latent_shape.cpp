#include "encode/latent_shape.h"

namespace lh {

Sizes latent_sizes(const LatentSpec& latents, const Bucket& bucket) {
  Sizes sizes{{"height", bucket.height / latents.downscale}, {"width", bucket.width / latents.downscale}};
  if (latents.time) sizes["time"] = latents.times(bucket.frames);
  if (bucket.sound > 0) sizes["sound"] = bucket.sound;
  return sizes;
}

Sizes pixel_sizes(const LatentSpec& latents, const Bucket& bucket) {
  Sizes sizes{{"height", bucket.height}, {"width", bucket.width}};
  if (latents.time) sizes["time"] = bucket.frames;
  return sizes;
}

Shape latent_shape(const LatentSpec& latents, const Sizes& sizes, int64_t batch, int64_t last) {
  const int64_t h = sizes.at("height"), w = sizes.at("width");
  return latents.time ? Shape{batch, sizes.at("time"), h, w, last} : Shape{batch, h, w, last};
}

int64_t latent_tokens(const LatentSpec& latents, const Sizes& sizes) {
  return latent_shape(latents, sizes, 1, 1).numel() / (latents.multiple * latents.multiple);
}

}  // namespace lh
