// The further images of a sample as the recipe's inputs want them: latents, pixels, or a mask at the size of latents;
// for models that paint a part of an image anew, which part that is and the latents of what is there beside it.
#pragma once

#include <vector>

#include "data/dataset.h"
#include "encode/latent_encoding.h"
#include "plugin/recipe.h"

namespace lh {

// A further image of a sample, scaled, cropped and mirrored like its own.
ImageCut further_cut(const ImageFile& file, const ImageCut& own);
// What a clip begins with: the image of that key, where there is one, or what it begins with itself.
ImageCut first_frame_cut(const std::string& key, const ImageFiles& images, const ImageCut& own);

class ImageInputs {
 public:
  ImageInputs(const Recipe& recipe, LatentEncoding& latents) : recipe_(recipe), latents_(latents) {}

  // What the VAE has to have encoded (LatentEncoding::prepare) before make(). own: the sample's own image, with a mask
  // where the model paints by one (Recipe::inpaints); the others are scaled, cropped and mirrored like it.
  std::vector<ImageCut> to_encode(const ImageFiles& images, const ImageCut& own) const;
  std::vector<ImageCut> to_encode(const Dataset& dataset) const;  // the samples' own images first
  // By input of the denoiser, float32: the mean of the latents [1, h, w, C], pixels in [-1, 1] [1, H, W, 3], or how
  // white the pixels of each place are, from 0 to 1, [1, h, w, 1]. For inpainting the mask, 0 or 1, of the pixels of
  // each place, row by row [1, h, w, downscale^2], and a draw of the latents of what it leaves [1, h, w, C]. Of what a
  // clip begins with, the mean of the latents with grey behind it [1, t, h, w, C].
  NamedTensors make(const ImageFiles& images, const ImageCut& own, Random posterior);

 private:
  HostTensor left_by_mask(const ImageCut& own, Random posterior);
  const Recipe& recipe_;
  LatentEncoding& latents_;
};

}  // namespace lh
