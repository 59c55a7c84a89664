// The KL autoencoder of Qwen-Image 2.1, of still images: [N, H, W, 4] <-> latents [N, H/16, W/16, z]. The fourth
// channel is how opaque a pixel is; images here have none, so they are opaque, and what is made is taken as it is.
//
// It is Wan 2.1's (wan_autoencoder.hpp) with levels that have a way around them, as Wan 2.2's autoencoder has:
//   down: y = resampled(res(res x)) + averages(x);  up: y = resampled(res(res(res x))) + copies(x)
//
// Averages and copies move numbers between places and channels, in Wan also between frames: levels that halve or double
// time (those with a time_conv) count a second frame. Of an image it is the one before, which is nothing: averages are
// taken with zeros, and copies of it are left out. Nothing else is left of time: kernels are [O, I, KH, KW], in some
// files with an axis of 1 for it.
#pragma once

#include "nn/wan_autoencoder.hpp"

namespace lora_host::nn {

class WanResidualAutoencoder : private WanAutoencoder {
 public:
  static constexpr int64_t channels = 4;

  WanResidualAutoencoder(Graph& g, std::string prefix) : WanAutoencoder(g, std::move(prefix)) {}

  // image in [-1, 1], three channels -> moments [N, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    const std::string root = prefix_ + "encoder.";
    const Dims d = g_.shape(x);
    Value opaque = g_.constant({1, 1, 1, 1}, std::vector<float>{1});
    x = g_.concat({x, g_.expand(g_.cast(opaque, LH_FLOAT), {d[0], d[1], d[2], 1})}, -1);
    x = conv(x, root + "conv1");
    for (int64_t i = 0; i < levels(weights_, root + "downsamples."); ++i) {
      const Level level(weights_, root + "downsamples." + std::to_string(i) + ".downsamples.");
      Value y = x;
      for (const std::string& part : level.parts) {
        auto scope = g_.scope(part, LH_SCOPE_CHECKPOINT);
        y = resamples(weights_, part) ? down(y, part) : res(y, part);
      }
      x = g_.add(y, averages(x, g_.shape(y)[3], level));
    }
    return conv(head(middle(x, root + "middle."), root), prefix_ + "conv1");
  }

  // latents of the autoencoder (not of the denoiser) -> image of three channels
  Value decode(Value x) {
    const std::string root = prefix_ + "decoder.";
    x = middle(conv(conv(x, prefix_ + "conv2"), root + "conv1"), root + "middle.");
    for (int64_t i = 0; i < levels(weights_, root + "upsamples."); ++i) {
      const Level level(weights_, root + "upsamples." + std::to_string(i) + ".upsamples.");
      Value y = x;
      for (const std::string& part : level.parts) {
        auto scope = g_.scope(part, LH_SCOPE_CHECKPOINT);
        y = resamples(weights_, part) ? up(y, part) : res(y, part);
      }
      x = level.resamples ? g_.add(y, copies(x, g_.shape(y)[3], level)) : y;
    }
    return g_.slice(head(x, root), -1, 0, 3);
  }

  // Res blocks and resamplings of a level, in order, and whether it changes the size, and time too.
  struct Level {
    Level(const Weights& weights, const std::string& name) : parts(WanAutoencoder::parts(weights, name)) {
      if (parts.empty()) return;
      resamples = WanAutoencoder::resamples(weights, parts.back());
      frames = weights.has(parts.back() + ".time_conv.weight") ? 2 : 1;
    }
    std::vector<std::string> parts;
    bool resamples = false;
    int64_t frames = 1;
  };
  // side: "vae:encoder.downsamples.", whose levels have lists of the same name.
  static int64_t levels(const Weights& weights, const std::string& side) {
    const size_t dot = side.find_last_of('.', side.size() - 2);
    return weights.count(side, side.substr(dot) + "0.residual.0.gamma");
  }

 private:
  // x [N, H, W, C] -> [N, H/2, W/2, out]. The numbers of 2 x 2 places, of each channel with those of the frames, are
  // one list, which is cut into `out` pieces; their means.
  Value averages(Value x, int64_t out, const Level& level) {
    Dims d = g_.shape(x);
    if (level.resamples) {
      x = g_.permute(g_.reshape(x, {d[0], d[1] / 2, 2, d[2] / 2, 2, d[3]}), {0, 1, 3, 5, 2, 4});
      d = {d[0], d[1] / 2, d[2] / 2, 4 * d[3]};
      if (level.frames == 2) {
        x = g_.pad(g_.reshape(x, {d[0], d[1], d[2], d[3] / 4, 4}), {0, 0, 0, 0, 4}, {0, 0, 0, 0, 0});
        d[3] *= 2;
      }
    }
    if (d[3] == out) return g_.reshape(x, d);
    return g_.reshape(g_.mean(g_.reshape(x, {d[0], d[1], d[2], out, d[3] / out}), {4}), {d[0], d[1], d[2], out});
  }

  // The other way: x [N, H, W, C] -> [N, 2H, 2W, out], each number as often as it takes to fill 2 x 2 places of the
  // frames, of which the last one is kept.
  Value copies(Value x, int64_t out, const Level& level) {
    const Dims d = g_.shape(x);
    const int64_t all = out * level.frames * 4;
    x = g_.expand(g_.reshape(x, {d[0], d[1], d[2], d[3], 1}), {d[0], d[1], d[2], d[3], all / d[3]});
    x = g_.slice(g_.reshape(x, {d[0] * d[1] * d[2], out, level.frames, 4}), 2, level.frames - 1, 1);
    x = g_.permute(g_.reshape(x, {d[0], d[1], d[2], out, 2, 2}), {0, 1, 4, 2, 5, 3});
    return g_.reshape(x, {d[0], 2 * d[1], 2 * d[2], out});
  }
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
  constexpr int64_t channels = WanResidualAutoencoder::channels, halvings = 4;
  require_image_conv(weights, prefix + "encoder.conv1", -1, channels, 3);
  require_image_conv(weights, prefix + "encoder.head.2", 2 * z, -1, 3);
  require_image_conv(weights, prefix + "conv1", 2 * z, 2 * z, 1);
  require_image_conv(weights, prefix + "conv2", z, z, 1);
  require_image_conv(weights, prefix + "decoder.conv1", -1, z, 3);
  require_image_conv(weights, prefix + "decoder.head.2", channels, -1, 3);
  for (const std::string list : {"downsamples.", "upsamples."}) {
    const std::string side = prefix + (list == "upsamples." ? "decoder." : "encoder.") + list;
    int64_t found = 0;
    for (int64_t i = 0; i < WanResidualAutoencoder::levels(weights, side); ++i)
      found += WanResidualAutoencoder::Level(weights, side + std::to_string(i) + "." + list).resamples ? 1 : 0;
    if (found != halvings)
      throw Failure(LH_E_MODEL, side + "*: expected " + std::to_string(halvings) + " levels with a resampling (N." +
                                    list + "N.resample.1.weight), found " + std::to_string(found));
  }
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
