// The further images of a sample as the recipe's inputs want them: latents, pixels, or a mask at the size of latents.
#pragma once

#include <vector>

#include "data/dataset.h"
#include "encode/latent_encoding.h"
#include "plugin/recipe.h"

namespace lh {

class ImageInputs {
 public:
  ImageInputs(const Recipe& recipe, LatentEncoding& latents) : recipe_(recipe), latents_(latents) {}

  // What the VAE has to have encoded (LatentEncoding::prepare) before make().
  std::vector<ImageCut> to_encode(const ImageFiles& images, const Bucket& bucket, Flip flip = {}, CropAt at = {}) const;
  std::vector<ImageCut> to_encode(const Dataset& dataset) const;  // the samples' own images first
  // By input of the denoiser, float32: the mean of the latents [1, h, w, C], pixels in [-1, 1] [1, H, W, 3], or how
  // white the pixels of each place are, from 0 to 1, [1, h, w, 1]. Every image is scaled and cropped to the bucket.
  NamedTensors make(const ImageFiles& images, const Bucket& bucket, Flip flip = {}, CropAt at = {});

 private:
  const Recipe& recipe_;
  LatentEncoding& latents_;
};

}  // namespace lh
