// The convolutional KL autoencoder of latent diffusion: images [N, H, W, 3] <-> latents [N, H/8, W/8, z].
//
// Levels, blocks, channels, z and the quant convolutions follow from the weights (native names under `prefix`, e.g.
// "vae:"). Norms have 32 groups and eps 1e-6. The denoiser sees (z - shift) * scale.
#pragma once

#include <cmath>
#include <string>

#include "nn/layers.hpp"

namespace lora_host::nn {

class Autoencoder {
 public:
  static constexpr int64_t groups = 32;
  static constexpr double eps = 1e-6;

  Autoencoder(Graph& g, std::string prefix) : g_(g), weights_(g.weights()), prefix_(std::move(prefix)) {}

  // image in [-1, 1] -> moments [N, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    std::string root = prefix_ + "encoder.";
    x = conv3(x, root + "conv_in");
    int64_t levels = weights_.count(root + "down.", ".block.0.norm1.weight");
    for (int64_t level = 0; level < levels; ++level) {
      std::string down = root + "down." + std::to_string(level);
      auto scope = g_.scope(down, LH_SCOPE_CHECKPOINT);
      x = blocks(x, down);
      // Stride 2 after one row below and one column to the right.
      if (weights_.has(down + ".downsample.conv.weight")) x = g_.conv2d(x, down + ".downsample.conv", 2, {0, 0, 1, 1});
    }
    x = middle(x, root + "mid");
    x = conv3(g_.silu(norm(x, root + "norm_out")), root + "conv_out");
    if (weights_.has(prefix_ + "quant_conv.weight")) x = pointwise(g_, x, prefix_ + "quant_conv");
    return x;
  }

  // latents of the autoencoder (not of the denoiser) -> image
  Value decode(Value x) {
    std::string root = prefix_ + "decoder.";
    if (weights_.has(prefix_ + "post_quant_conv.weight")) x = pointwise(g_, x, prefix_ + "post_quant_conv");
    x = conv3(x, root + "conv_in");
    x = middle(x, root + "mid");
    for (int64_t level = weights_.count(root + "up.", ".block.0.norm1.weight"); level-- > 0;) {
      std::string up = root + "up." + std::to_string(level);
      auto scope = g_.scope(up, LH_SCOPE_CHECKPOINT);
      x = blocks(x, up);
      if (weights_.has(up + ".upsample.conv.weight")) x = conv3(g_.upsample_nearest2x(x), up + ".upsample.conv");
    }
    return conv3(g_.silu(norm(x, root + "norm_out")), root + "conv_out");
  }

 protected:  // parts that its kin have, too
  Value norm(Value x, const std::string& module) { return g_.group_norm(x, module, groups, eps); }
  Value conv3(Value x, const std::string& module) { return g_.conv2d(x, module, 1, {1, 1, 1, 1}); }

  Value blocks(Value x, const std::string& level) {
    int64_t count = weights_.count(level + ".block.", ".norm1.weight");
    for (int64_t i = 0; i < count; ++i) x = resnet(x, level + ".block." + std::to_string(i));
    return x;
  }

  Value resnet(Value x, const std::string& module) {
    Value h = conv3(g_.silu(norm(x, module + ".norm1")), module + ".conv1");
    h = conv3(g_.silu(norm(h, module + ".norm2")), module + ".conv2");
    if (weights_.has(module + ".nin_shortcut.weight")) x = pointwise(g_, x, module + ".nin_shortcut");
    return g_.add(x, h);
  }

  Value middle(Value x, const std::string& module) {
    auto scope = g_.scope(module, LH_SCOPE_CHECKPOINT);
    x = resnet(x, module + ".block_1");
    x = attention(x, module + ".attn_1");
    return resnet(x, module + ".block_2");
  }

  // One head over all places of the image.
  Value attention(Value x, const std::string& module) {
    Dims d = g_.shape(x);  // [N, H, W, C]
    Dims tokens = {d[0], d[1] * d[2], 1, d[3]};
    Value h = norm(x, module + ".norm");
    Value q = g_.reshape(pointwise(g_, h, module + ".q"), tokens);
    Value k = g_.reshape(pointwise(g_, h, module + ".k"), tokens);
    Value v = g_.reshape(pointwise(g_, h, module + ".v"), tokens);
    h = g_.reshape(g_.attention(q, k, v, 1.0 / std::sqrt(static_cast<double>(d[3]))), d);
    return g_.add(x, pointwise(g_, h, module + ".proj_out"));
  }

  Graph& g_;
  Weights weights_;
  std::string prefix_;
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit. `z` latent channels and
// `levels` levels of resolution are expected; z 0: whatever the decoder takes.
inline void check_autoencoder(const Weights& weights, const std::string& prefix, int64_t z, int64_t levels) {
  z = weights.require(prefix + "decoder.conv_in.weight", {-1, z > 0 ? z : -1, 3, 3})[1];
  weights.require(prefix + "encoder.conv_out.weight", {2 * z, -1, 3, 3});
  weights.require(prefix + "decoder.conv_out.weight", {-1, -1, 3, 3});
  for (const char* side : {"encoder.down.", "decoder.up."})
    if (int64_t found = weights.count(prefix + side, ".block.0.norm1.weight"); found != levels)
      throw Failure(LH_E_MODEL, prefix + side + "*: expected " + std::to_string(levels) + " levels, found " +
                                    std::to_string(found));
}

struct LatentScale {
  double scale, shift;
};

// What an encoder says of the latents, f32 [N, h, w, z] each, with time [N, t, h, w, z].
struct Posterior {
  Value mean, deviation;
};

// moments [N, h, w, 2z]: mean and log-variance.
inline Posterior posterior_of(Graph& g, Value moments) {
  int64_t z = g.shape(moments).back() / 2;
  Value exact = g.cast(moments, LH_F32);
  return {g.slice(exact, -1, 0, z), g.exp(g.affine(g.clamp(g.slice(exact, -1, z, z), -30, 20), 0.5))};
}

// Outputs of role vae.encode: `posterior` f32 [N, h, w, 2z], mean and standard deviation of the latents in model space,
// and for inspection `moments` (mean and log-variance, as the network gives them) and `latent_mean`.
inline void output_posterior(Graph& g, Value moments, const Posterior& in_model_space) {
  g.output("posterior", g.concat({in_model_space.mean, in_model_space.deviation}, -1));
  g.output("moments", moments);
  g.output("latent_mean", in_model_space.mean);
}
inline void output_posterior(Graph& g, Value moments, LatentScale to_model) {
  Posterior latents = posterior_of(g, moments);
  latents.mean = g.affine(latents.mean, to_model.scale, -to_model.shift * to_model.scale);
  latents.deviation = g.affine(latents.deviation, to_model.scale);
  output_posterior(g, moments, latents);
}

// Role vae.encode.
inline void build_vae_encode(Graph& g, const std::string& prefix, LatentScale to_model, const Sizes& sizes) {
  int64_t channels = g.weights().require(prefix + "encoder.conv_in.weight", {-1, -1, 3, 3})[1];
  Value image = g.input("image", {sizes["batch"], sizes["height"], sizes["width"], channels});
  output_posterior(g, Autoencoder(g, prefix).encode(image), to_model);
}

// Role vae.decode: latents in model space -> image.
inline void build_vae_decode(Graph& g, const std::string& prefix, LatentScale to_model, const Sizes& sizes) {
  int64_t z = g.weights().require(prefix + "decoder.conv_in.weight", {-1, -1, 3, 3})[1];
  Value latents = g.input("latents", {sizes["batch"], sizes["height"], sizes["width"], z});
  g.output("image", Autoencoder(g, prefix).decode(g.affine(latents, 1.0 / to_model.scale, to_model.shift)));
}

}  // namespace lora_host::nn
