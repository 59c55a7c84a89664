// The KL autoencoder of Wan 2.1, of still images: [N, H, W, C] <-> latents [N, H/8, W/8, z]. Qwen-Image has it too; of
// videos it is in wan_video_autoencoder.hpp.
//
//   downsamples, upsamples: res blocks, and between levels a resampling; middle: res block, attention, res block
//   res block: x + conv(silu(norm(conv(silu(norm x)))));  norm: x / |x| sqrt(C) gamma, over the channels
//
// Its convolutions have an axis of time and look back only. Before the single frame of an image there is nothing, so
// the last of a kernel's taps in time does all, and what resamples time (time_conv) is not reached. Blocks, channels
// and z follow from the weights (the names of the original files under `prefix`, e.g. "vae:").
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "nn/autoencoder.hpp"
#include "nn/latent_model.hpp"

namespace lora_host::nn {

// x / |x| sqrt(C) gamma, over the channels.
inline Value channel_norm(Graph& g, Value x, const std::string& gamma) {
  const int64_t channels = g.shape(x).back();
  constexpr double least = 1e-12;  // length of a vector that is not made longer
  return g.rms_norm(x, least * least / static_cast<double>(channels), g.reshape(g.param(gamma), {channels}));
}

class WanAutoencoder {
 public:
  WanAutoencoder(Graph& g, std::string prefix) : g_(g), weights_(g.weights()), prefix_(std::move(prefix)) {}
  virtual ~WanAutoencoder() = default;

  // image in [-1, 1] -> moments [N, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    const std::string root = prefix_ + "encoder.";
    x = downsamples(conv(of_pixels(x), root + "conv1"), root + "downsamples.");
    return conv(head(middle(x, root + "middle."), root), prefix_ + "conv1");
  }

  // latents of the autoencoder (not of the denoiser) -> image
  Value decode(Value x) {
    const std::string root = prefix_ + "decoder.";
    x = middle(conv(conv(x, prefix_ + "conv2"), root + "conv1"), root + "middle.");
    return to_pixels(head(upsamples(x, root + "upsamples."), root));
  }

  // Res blocks and resamplings of a side, in order.
  static std::vector<std::string> parts(const Weights& weights, const std::string& side) {
    std::vector<std::string> names;
    const auto name = [&] { return side + std::to_string(names.size()); };
    while (resamples(weights, name()) || weights.has(name() + ".residual.0.gamma")) names.push_back(name());
    return names;
  }
  static bool resamples(const Weights& weights, const std::string& part) {
    return weights.has(part + ".resample.1.weight");
  }

 protected:  // what is virtual is otherwise where there is time, or levels have a way around them
  virtual Value conv(Value x, const std::string& module) { return image_conv(x, module); }
  // Stride 2 after one row below and one column to the right.
  virtual Value down(Value x, const std::string& part) { return image_conv(x, part + ".resample.1", 2, {0, 0, 1, 1}); }
  virtual Value up(Value x, const std::string& part) {
    return image_conv(g_.upsample_nearest2x(x), part + ".resample.1");
  }

  // What the first convolution reads, of an image; an image, of what the last one gives.
  virtual Value of_pixels(Value x) { return x; }
  virtual Value to_pixels(Value x) { return x; }

  virtual Value downsamples(Value x, const std::string& side) {
    for (const std::string& part : parts(weights_, side)) x = downsample(x, part);
    return x;
  }
  virtual Value upsamples(Value x, const std::string& side) {
    for (const std::string& part : parts(weights_, side)) x = upsample(x, part);
    return x;
  }
  Value downsample(Value x, const std::string& part) {
    auto scope = g_.scope(part, LH_SCOPE_CHECKPOINT);
    return resamples(weights_, part) ? down(x, part) : res(x, part);
  }
  Value upsample(Value x, const std::string& part) {
    auto scope = g_.scope(part, LH_SCOPE_CHECKPOINT);
    return resamples(weights_, part) ? up(x, part) : res(x, part);
  }

  // By its last tap in time; sides keep their length unless `pad` says otherwise.
  Value image_conv(Value x, const std::string& module, int64_t stride = 1, std::vector<int64_t> pad = {}) {
    Value weight = g_.param(module + ".weight");
    Dims d = g_.shape(weight);  // [O, I, KT, KH, KW], of resamplings and attention [O, I, KH, KW]
    if (d.size() == 5) {
      weight = g_.reshape(g_.slice(weight, 2, d[2] - 1, 1), {d[0], d[1], d[3], d[4]});
      d = g_.shape(weight);
    }
    if (pad.empty()) pad = {d[2] / 2, d[2] / 2, d[3] / 2, d[3] / 2};
    return g_.conv2d(x, weight, g_.param(module + ".bias"), stride, pad);
  }

  Value norm(Value x, const std::string& name) { return channel_norm(g_, x, name); }

  Value res(Value x, const std::string& module) {
    Value h = conv(g_.silu(norm(x, module + ".residual.0.gamma")), module + ".residual.2");
    h = conv(g_.silu(norm(h, module + ".residual.3.gamma")), module + ".residual.6");
    if (weights_.has(module + ".shortcut.weight")) x = conv(x, module + ".shortcut");
    return g_.add(x, h);
  }

  Value middle(Value x, const std::string& root) {
    auto scope = g_.scope(root + "0", LH_SCOPE_CHECKPOINT);
    return res(attention(res(x, root + "0"), root + "1"), root + "2");
  }

  // One head over all places of the image.
  virtual Value attention(Value x, const std::string& module) {
    const Dims d = g_.shape(x);  // [N, H, W, C]
    Value qkv = image_conv(norm(x, module + ".norm.gamma"), module + ".to_qkv");
    qkv = g_.reshape(qkv, {d[0], d[1] * d[2], 1, 3 * d[3]});
    std::vector<Value> parts = g_.split(qkv, -1, {d[3], d[3], d[3]});
    Value y = g_.attention(parts[0], parts[1], parts[2], 1.0 / std::sqrt(static_cast<double>(d[3])));
    return g_.add(x, image_conv(g_.reshape(y, d), module + ".proj"));
  }

  Value head(Value x, const std::string& root) {
    return conv(g_.silu(norm(x, root + "head.0.gamma")), root + "head.2");
  }

  Graph& g_;
  Weights weights_;
  std::string prefix_;
};

// The convolutions at the ends of both sides, and `z` latent channels between them; `channels` of what is encoded.
inline void require_wan_ends(const Weights& weights, const std::string& prefix, int64_t z, int64_t channels) {
  weights.require(prefix + "encoder.conv1.weight", {-1, channels, 3, 3, 3});
  weights.require(prefix + "encoder.head.2.weight", {2 * z, -1, 3, 3, 3});
  weights.require(prefix + "conv1.weight", {2 * z, 2 * z, 1, 1, 1});
  weights.require(prefix + "conv2.weight", {z, z, 1, 1, 1});
  weights.require(prefix + "decoder.conv1.weight", {-1, z, 3, 3, 3});
  weights.require(prefix + "decoder.head.2.weight", {channels, -1, 3, 3, 3});
}

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit. `z` latent channels and three
// halvings of the size are expected.
inline void check_wan_autoencoder(const Weights& weights, const std::string& prefix, int64_t z) {
  require_wan_ends(weights, prefix, z, 3);
  for (const char* side : {"encoder.downsamples.", "decoder.upsamples."}) {
    int64_t found = 0;
    for (const std::string& part : WanAutoencoder::parts(weights, prefix + side))
      found += WanAutoencoder::resamples(weights, part) ? 1 : 0;
    if (found != 3)
      throw Failure(LH_E_MODEL,
                    prefix + side + "*: expected 3 resamplings (N.resample.1.weight), found " + std::to_string(found));
  }
}

// Latents in model space are (z - mean) / deviation, in each channel for itself.
struct LatentStatistics {
  std::vector<float> mean, deviation;

  static Value row(Graph& g, const std::vector<float>& of) {
    return g.constant({1, 1, 1, static_cast<int64_t>(of.size())}, of);
  }
};

// Those of the released autoencoder, 16 channels.
inline const LatentStatistics& wan_latents() {
  static const LatentStatistics published = {
      .mean = {-0.7571f, -0.7089f, -0.9113f, 0.1075f, -0.1745f, 0.9653f, -0.1517f, 1.5508f, 0.4134f, -0.0715f, 0.5517f,
               -0.3632f, -0.1922f, -0.9497f, 0.2503f, -0.2921f},
      .deviation = {2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f, 2.6052f, 2.0743f, 3.2687f, 2.1526f, 2.8652f,
                    1.5579f, 1.6382f, 1.1253f, 2.8251f, 1.9160f}};
  return published;
}

// Role vae.encode, by an autoencoder of this kind. image: [B, H, W, 3], with time [B, T, H, W, 3].
template <class Network>
void encode_with(Graph& g, const std::string& prefix, const LatentStatistics& latents, Value image) {
  Value moments = Network(g, prefix).encode(image);
  Posterior posterior = posterior_of(g, moments);
  Value deviation = LatentStatistics::row(g, latents.deviation);
  posterior.mean = g.div(g.sub(posterior.mean, LatentStatistics::row(g, latents.mean)), deviation);
  posterior.deviation = g.div(posterior.deviation, deviation);
  output_posterior(g, moments, posterior);
}
template <class Network>
void encode_with(Graph& g, const std::string& prefix, const LatentStatistics& latents, const Sizes& sizes) {
  encode_with<Network>(g, prefix, latents, g.input("image", {sizes["batch"], sizes["height"], sizes["width"], 3}));
}

// Role vae.decode: latents in model space -> image.
template <class Network>
void decode_with(Graph& g, const std::string& prefix, const LatentStatistics& latents, Value x) {
  x = g.cast(x, LH_F32);
  x = g.add(g.mul(x, LatentStatistics::row(g, latents.deviation)), LatentStatistics::row(g, latents.mean));
  g.output("image", Network(g, prefix).decode(g.cast(x, LH_FLOAT)));
}
template <class Network>
void decode_with(Graph& g, const std::string& prefix, const LatentStatistics& latents, const Sizes& sizes) {
  const auto z = static_cast<int64_t>(latents.mean.size());
  decode_with<Network>(g, prefix, latents, g.input("latents", {sizes["batch"], sizes["height"], sizes["width"], z}));
}

// A model whose latents are this autoencoder's.
class WanLatentModel : public LatentModel {
 protected:
  using LatentModel::LatentModel;

 private:
  void build_encode(Graph& g, const Sizes& sizes) const final {
    encode_with<WanAutoencoder>(g, "vae:", wan_latents(), sizes);
  }
  void build_decode(Graph& g, const Sizes& sizes) const final {
    decode_with<WanAutoencoder>(g, "vae:", wan_latents(), sizes);
  }
};

}  // namespace lora_host::nn
