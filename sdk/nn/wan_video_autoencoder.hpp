// The KL autoencoder of Wan 2.1, of videos: [N, T, H, W, C] <-> latents [N, t, H/8, W/8, z], T = 4 (t - 1) + 1.
//
// It is that of still images (wan_autoencoder.hpp) with its axis of time: convolutions look back over it, and two of
// the three resamplings of a side (those with a time_conv) halve or double it, all but the first frame x0:
//   down: x0, then a convolution of x0 x1 x2, of x2 x3 x4, ...
//   up:   x0, then of each of x1, x2, ... two frames, as channels of a convolution that sees nothing of x0
// Attention is within a frame.
//
// A video goes through in chunks, its first frame and then what makes one latent each, and convolutions are shown the
// last frames of what they saw before. The result is that of the whole, which would not fit: of 81 frames of 480 x 832
// one tensor of 96 channels has 5.8 GiB in 16 bits, and a chunk's 0.3; encoding takes 2.8 GiB and decoding 3.8, of
// longer videos hardly more. The price is a copy of each chunk, beside those frames. Convolutions have three axes since
// frames side by side in channels, for those of two, would be three copies.
#pragma once

#include <algorithm>

#include "nn/video_chunks.hpp"
#include "nn/wan_autoencoder.hpp"

namespace lora_host::nn {

class WanVideoAutoencoder : public WanAutoencoder {
 public:
  static constexpr int64_t frames_of_latent = 4;

  WanVideoAutoencoder(Graph& g, std::string prefix) : WanAutoencoder(g, std::move(prefix)), chunks_(g) {}

  // video in [-1, 1] -> moments [N, t, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    return chunks_.each(x, frames_of_latent, [&](Value chunk) { return WanAutoencoder::encode(chunk); });
  }

  // latents of the autoencoder (not of the denoiser) -> video
  Value decode(Value x) {
    return chunks_.each(x, 1, [&](Value chunk) { return WanAutoencoder::decode(chunk); });
  }

  // Resamplings of a side that change time as well: the last two down, the first two up.
  static constexpr int64_t time_resamplings = 2;
  static std::string time_conv(const std::string& part) { return part + ".time_conv"; }

 protected:
  bool first_chunk() const { return chunks_.first(); }

  template <class F>
  Value by_frame(Value x, F f) {
    const Dims d = g_.shape(x);  // [N, t, H, W, C]
    Value y = f(g_.reshape(x, {d[0] * d[1], d[2], d[3], d[4]}));
    const Dims e = g_.shape(y);
    return g_.reshape(y, {d[0], d[1], e[1], e[2], e[3]});
  }

 private:
  Value conv(Value x, const std::string& module) override {
    const Dims kernel = weights_.require(module + ".weight", {-1, -1, -1, -1, -1});  // [O, I, KT, KH, KW]
    const int64_t back = kernel[2] - 1, above = kernel[3] / 2, beside = kernel[4] / 2, frames = g_.shape(x)[1];
    if (back > 0) x = chunks_.behind_seen(x, module, back);
    const int64_t missing = back - (g_.shape(x)[1] - frames);
    return conv3d(x, module, {1, 1, 1}, {missing, 0, above, above, beside, beside});
  }
  Value conv3d(Value x, const std::string& module, const Dims& stride, const Dims& pad) {
    return g_.conv3d(x, g_.param(module + ".weight"), g_.param(module + ".bias"), stride, pad);
  }

  Value down(Value x, const std::string& part) override {
    x = by_frame(x, [&](Value images) { return WanAutoencoder::down(images, part); });
    if (!weights_.has(time_conv(part) + ".weight")) return x;
    x = chunks_.behind_seen(x, part, 1);
    return chunks_.first() ? x : conv3d(x, time_conv(part), {2, 1, 1}, {0, 0, 0, 0, 0, 0});
  }

  Value up(Value x, const std::string& part) override {
    if (!chunks_.first() && weights_.has(time_conv(part) + ".weight")) {
      const Dims d = g_.shape(x);  // [N, t, H, W, C]
      x = g_.reshape(conv(x, time_conv(part)), {d[0], d[1], d[2], d[3], 2, d[4]});
      x = g_.reshape(g_.permute(x, {0, 1, 4, 2, 3, 5}), {d[0], 2 * d[1], d[2], d[3], d[4]});
    }
    return by_frame(x, [&](Value images) { return WanAutoencoder::up(images, part); });
  }

  Value attention(Value x, const std::string& module) override {
    return by_frame(x, [&](Value images) { return WanAutoencoder::attention(images, module); });
  }

  VideoChunks chunks_;
};

// As check_wan_autoencoder; what resamples time is reached as well.
inline void check_wan_video_autoencoder(const Weights& weights, const std::string& prefix, int64_t z) {
  check_wan_autoencoder(weights, prefix, z);
  for (const std::string side : {"encoder.downsamples.", "decoder.upsamples."}) {
    std::vector<std::string> parts = WanAutoencoder::parts(weights, prefix + side);
    std::erase_if(parts, [&](const std::string& part) { return !WanAutoencoder::resamples(weights, part); });
    if (side == "encoder.downsamples.") std::ranges::reverse(parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string module = WanVideoAutoencoder::time_conv(parts[i]);
      const int64_t channels = weights.extent(parts[i] + ".resample.1.weight", 1);
      const int64_t made = side == "decoder.upsamples." ? 2 * channels : channels;
      if (static_cast<int64_t>(i) < WanVideoAutoencoder::time_resamplings)
        weights.require(module + ".weight", {made, channels, 3, 1, 1});
      else if (weights.has(module + ".weight"))
        throw Failure(LH_E_MODEL, module + ".weight: expected to be missing: time is resampled twice, not three times");
    }
  }
}

// The roles vae.encode and vae.decode of videos, by an autoencoder of this kind.
inline Dims video_dims(const Sizes& sizes, int64_t channels) {
  return {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], channels};
}
template <class Network>
void encode_video_with(Graph& g, const std::string& prefix, const LatentStatistics& latents, const Sizes& sizes) {
  encode_with<Network>(g, prefix, latents, g.input("image", video_dims(sizes, 3)));
}
template <class Network>
void decode_video_with(Graph& g, const std::string& prefix, const LatentStatistics& latents, const Sizes& sizes) {
  const auto z = static_cast<int64_t>(latents.mean.size());
  decode_with<Network>(g, prefix, latents, g.input("latents", video_dims(sizes, z)));
}

// A model of videos whose latents are this autoencoder's.
class WanVideoLatentModel : public LatentModel {
 protected:
  using LatentModel::LatentModel;

  void build_encode(Graph& g, const Sizes& sizes) const override {
    encode_video_with<WanVideoAutoencoder>(g, "vae:", wan_latents(), sizes);
  }
  void build_decode(Graph& g, const Sizes& sizes) const override {
    decode_video_with<WanVideoAutoencoder>(g, "vae:", wan_latents(), sizes);
  }
};

}  // namespace lora_host::nn
