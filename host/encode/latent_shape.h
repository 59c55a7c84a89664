// The axes of what is diffused: [B, height, width, C] for images, [B, time, height, width, C] for models of videos.
#pragma once

#include "data/sample.h"
#include "plugin/model.h"

namespace lh {

// Latent places along each axis that a bucket's images or clips have, as the denoiser's graph is built with them.
Sizes latent_sizes(const LatentSpec& latents, const Bucket& bucket);
// The sizes in frames and pixels that vae.encode is built with.
Sizes pixel_sizes(const LatentSpec& latents, const Bucket& bucket);
// The shape with sizes of either kind, and `last` numbers in each place.
Shape latent_shape(const LatentSpec& latents, const Sizes& sizes, int64_t batch, int64_t last);
// Of an image or clip with such sizes in latent places: squares of `multiple` places.
int64_t latent_tokens(const LatentSpec& latents, const Sizes& sizes);

}  // namespace lh
