// A KL autoencoder whose levels move numbers between places and channels, such as that of HunyuanImage 2.1: images
// [N, H, W, 3] <-> latents [N, H/32, W/32, 64].
//
// Blocks and middle are those of nn/autoencoder.hpp. What differs: levels, and the ends, have a way around the
// convolution,
//   down: y = to_channels(conv(x)) + means(to_channels(x));  up: y = to_places(conv(x) + copies(x))
//   encoder: moments = conv_out(...) + means(last states);  decoder: x = conv_in(z) + copies(z)
// where means are of neighbouring channels, and copies of each; and the decoder's levels are counted from the smallest.
#pragma once

#include "nn/latent_model.hpp"

namespace lora_host::nn {

// [..., C] -> [..., out]: means of neighbouring channels, and each channel as often as it takes.
inline Value channel_means(Graph& g, Value x, int64_t out) {
  Dims made = g.shape(x), pieces = made;
  pieces.back() = out;
  pieces.push_back(made.back() / out);
  made.back() = out;
  return g.reshape(g.mean(g.reshape(x, pieces), {static_cast<int64_t>(made.size())}), made);
}
inline Value channel_copies(Graph& g, Value x, int64_t out) {
  Dims made = g.shape(x), single = made, pieces = made;
  single.push_back(1);
  pieces.push_back(out / made.back());
  made.back() = out;
  return g.reshape(g.expand(g.reshape(x, single), pieces), made);
}

class ShuffleAutoencoder : private Autoencoder {
 public:
  using Autoencoder::Autoencoder;

  // image in [-1, 1] -> moments [N, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    const std::string root = prefix_ + "encoder.";
    x = conv3(x, root + "conv_in");
    for (int64_t level = 0; level < weights_.count(root + "down.", ".block.0.norm1.weight"); ++level) {
      const std::string down = root + "down." + std::to_string(level);
      auto scope = g_.scope(down, LH_SCOPE_CHECKPOINT);
      x = blocks(x, down);
      if (!weights_.has(down + ".downsample.conv.weight")) continue;
      Value y = to_channels(conv3(x, down + ".downsample.conv"));
      x = g_.add(y, channel_means(g_, to_channels(x), g_.shape(y)[3]));
    }
    x = middle(x, root + "mid");
    Value moments = conv3(g_.silu(norm(x, root + "norm_out")), root + "conv_out");
    return g_.add(moments, channel_means(g_, x, g_.shape(moments)[3]));
  }

  // latents of the autoencoder (not of the denoiser) -> image
  Value decode(Value z) {
    const std::string root = prefix_ + "decoder.";
    Value x = conv3(z, root + "conv_in");
    x = middle(g_.add(x, channel_copies(g_, z, g_.shape(x)[3])), root + "mid");
    for (int64_t level = 0; level < weights_.count(root + "up.", ".block.0.norm1.weight"); ++level) {
      const std::string up = root + "up." + std::to_string(level);
      auto scope = g_.scope(up, LH_SCOPE_CHECKPOINT);
      x = blocks(x, up);
      if (!weights_.has(up + ".upsample.conv.weight")) continue;
      Value y = conv3(x, up + ".upsample.conv");
      x = to_places(g_.add(y, channel_copies(g_, x, g_.shape(y)[3])));
    }
    return conv3(g_.silu(norm(x, root + "norm_out")), root + "conv_out");
  }

 private:
  // [N, H, W, C] -> [N, H/2, W/2, 4C]: the numbers of 2 x 2 places, the channel fastest.
  Value to_channels(Value x) {
    const Dims d = g_.shape(x);
    x = g_.permute(g_.reshape(x, {d[0], d[1] / 2, 2, d[2] / 2, 2, d[3]}), {0, 1, 3, 2, 4, 5});
    return g_.reshape(x, {d[0], d[1] / 2, d[2] / 2, 4 * d[3]});
  }
  // [N, H, W, 4C] -> [N, 2H, 2W, C]
  Value to_places(Value x) {
    const Dims d = g_.shape(x);
    x = g_.permute(g_.reshape(x, {d[0], d[1], d[2], 2, 2, d[3] / 4}), {0, 1, 3, 2, 4, 5});
    return g_.reshape(x, {d[0], 2 * d[1], 2 * d[2], d[3] / 4});
  }
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit: `z` latent channels (0:
// whatever the decoder takes), and a change of size in each of `levels` but the last.
inline void check_shuffle_autoencoder(const Weights& weights, const std::string& prefix, int64_t z, int64_t levels) {
  check_autoencoder(weights, prefix, z, levels);
  z = weights.extent(prefix + "decoder.conv_in.weight", 1);
  const auto divides = [&](const std::string& tensor, int64_t channels, int64_t by) {
    if (by == 0 || channels % by != 0)
      throw Failure(LH_E_MODEL, prefix + tensor + ".weight: expected a multiple of " + std::to_string(by) +
                                    " channels, found " + std::to_string(channels));
  };
  for (int64_t level = 0; level + 1 < levels; ++level) {
    const std::string down = "encoder.down." + std::to_string(level) + ".downsample.conv";
    const std::string up = "decoder.up." + std::to_string(level) + ".upsample.conv";
    const Dims narrow = weights.require(prefix + down + ".weight", {-1, -1, 3, 3});
    divides(down, 4 * narrow[1], 4 * narrow[0]);
    const Dims wide = weights.require(prefix + up + ".weight", {-1, -1, 3, 3});
    divides(up, wide[0], 4);
    divides(up, wide[0], wide[1]);
  }
  divides("encoder.conv_out", weights.extent(prefix + "encoder.conv_out.weight", 1), 2 * z);
  divides("decoder.conv_in", weights.extent(prefix + "decoder.conv_in.weight", 0), z);
}

// A model whose latents are this autoencoder's.
class ShuffleLatentModel : public LatentModel {
 protected:
  explicit ShuffleLatentModel(const LatentModelFacts& facts) : LatentModel(facts), scale_(facts.latents) {}

 private:
  void build_encode(Graph& g, const Sizes& sizes) const final {
    Value image = g.input("image", {sizes["batch"], sizes["height"], sizes["width"], 3});
    output_posterior(g, ShuffleAutoencoder(g, "vae:").encode(image), scale_);
  }
  void build_decode(Graph& g, const Sizes& sizes) const final {
    const int64_t z = g.weights().require("vae:decoder.conv_in.weight", {-1, -1, 3, 3})[1];
    Value latents = g.input("latents", {sizes["batch"], sizes["height"], sizes["width"], z});
    g.output("image", ShuffleAutoencoder(g, "vae:").decode(g.affine(latents, 1.0 / scale_.scale, scale_.shift)));
  }
  LatentScale scale_;
};

}  // namespace lora_host::nn
