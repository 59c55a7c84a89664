// The KL autoencoder of Qwen-Image 2.1, of still images: [N, H, W, 4] <-> latents [N, H/16, W/16, z]. The fourth
// channel is how opaque a pixel is; images here have none, so they are opaque, and what is made is taken as it is.
//
// It is Wan 2.1's (wan_autoencoder.hpp) with levels that have a way around them (wan_residual_levels.hpp), as Wan 2.2's
// autoencoder has, of which nothing is left of time: kernels are [O, I, KH, KW], in some files with an axis of 1 for
// it.
#pragma once

#include "nn/wan_residual_levels.hpp"

namespace lora_host::nn {

class WanResidualAutoencoder final : public WithWaysAround<WanAutoencoder> {
 public:
  static constexpr int64_t channels = 4;

  using WithWaysAround::WithWaysAround;

 private:
  // Three channels outside.
  Value of_pixels(Value x) override {
    const Dims d = g_.shape(x);
    Value opaque = g_.constant({1, 1, 1, 1}, std::vector<float>{1});
    return g_.concat({x, g_.expand(g_.cast(opaque, LH_FLOAT), {d[0], d[1], d[2], 1})}, -1);
  }
  Value to_pixels(Value x) override { return g_.slice(x, -1, 0, 3); }
};

// A convolution of files with and without an axis of time.
inline void require_image_conv(const Weights& weights, const std::string& module, int64_t out, int64_t in,
                               int64_t kernel) {
  const bool timed = weights.require(module + ".weight").size() == 5;
  weights.require(module + ".weight", timed ? Dims{out, in, 1, kernel, kernel} : Dims{out, in, kernel, kernel});
}

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit. `z` latent channels and four
// halvings of the size are expected.
inline void check_wan_residual_autoencoder(const Weights& weights, const std::string& prefix, int64_t z) {
  constexpr int64_t channels = WanResidualAutoencoder::channels;
  require_image_conv(weights, prefix + "encoder.conv1", -1, channels, 3);
  require_image_conv(weights, prefix + "encoder.head.2", 2 * z, -1, 3);
  require_image_conv(weights, prefix + "conv1", 2 * z, 2 * z, 1);
  require_image_conv(weights, prefix + "conv2", z, z, 1);
  require_image_conv(weights, prefix + "decoder.conv1", -1, z, 3);
  require_image_conv(weights, prefix + "decoder.head.2", channels, -1, 3);
  require_wan_levels(weights, prefix, 4);
}

// A model whose latents are this autoencoder's, in model space (z - mean) / deviation.
class WanResidualLatentModel : public LatentModel {
 protected:
  WanResidualLatentModel(const LatentModelFacts& facts, const LatentStatistics& latents)
      : LatentModel(facts), latents_(latents) {}

 private:
  void build_encode(Graph& g, const Sizes& sizes) const final {
    encode_with<WanResidualAutoencoder>(g, "vae:", latents_, sizes);
  }
  void build_decode(Graph& g, const Sizes& sizes) const final {
    decode_with<WanResidualAutoencoder>(g, "vae:", latents_, sizes);
  }
  const LatentStatistics& latents_;
};

}  // namespace lora_host::nn
