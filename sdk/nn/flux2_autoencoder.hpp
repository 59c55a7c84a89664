// The autoencoder of Flux.2 and Flux.3: the convolutional one of nn/autoencoder.hpp with 32 channels, whose latents are
// cut into patches of 2x2 and brought to mean 0 and variance 1 by the statistics of a batch norm, a pair for each of
// the 128 channels. In files it is that of nn/autoencoder.yaml, with the tensors bn.running_mean and bn.running_var.
#pragma once

#include <string>

#include "nn/autoencoder.hpp"
#include "nn/mmdit.hpp"

namespace lora_host::nn {

// What turns patches into latents of the model, and back.
class PatchStatistics {
 public:
  static constexpr int64_t patch = 2;

  PatchStatistics(Graph& g, const std::string& prefix)
      : g_(g),
        mean_(g.cast(g.param(prefix + mean_key), LH_F32)),
        deviation_(g.sqrt(g.affine(g.cast(g.param(prefix + variance_key), LH_F32), 1, eps))) {}

  // `channels` are those of the model.
  static void check(const Weights& weights, const std::string& prefix, int64_t channels) {
    for (const char* key : {mean_key, variance_key}) weights.require(prefix + key, {channels});
  }
  static int64_t channels(const Weights& weights, const std::string& prefix) {
    return weights.require(prefix + mean_key)[0];
  }

  Value normalised(Value x) const { return g_.div(g_.sub(x, mean_), deviation_); }  // f32 [N, h, w, C]
  Value restored(Value x) const { return g_.add(g_.mul(g_.cast(x, LH_F32), deviation_), mean_); }

 private:
  static constexpr double eps = 1e-4;
  static constexpr const char *mean_key = "bn.running_mean", *variance_key = "bn.running_var";

  Graph& g_;
  Value mean_, deviation_;  // f32 [C], which broadcast over [N, h, w, C]
};

// Throws where a tensor is missing or does not fit a model of so many `channels`.
inline void check_flux2_autoencoder(const Weights& weights, const std::string& prefix, int64_t channels) {
  constexpr int64_t levels = 4;
  check_autoencoder(weights, prefix, channels / (PatchStatistics::patch * PatchStatistics::patch), levels);
  PatchStatistics::check(weights, prefix, channels);
}

// Role vae.encode. The models were trained on the mean of what the encoder says, so there is nothing to draw.
inline void build_flux2_encode(Graph& g, const std::string& prefix, const Sizes& sizes) {
  constexpr int64_t patch = PatchStatistics::patch;
  Value image = g.input("image", {sizes["batch"], sizes["height"], sizes["width"], 3});
  Value moments = Autoencoder(g, prefix).encode(image);
  Value mean = posterior_of(g, moments).mean;  // [N, 2h, 2w, 32]
  const Dims d = g.shape(mean);
  mean = patchify_channel_first(g, mean, patch);  // [N, h w, 128]
  mean = g.reshape(mean, {d[0], d[1] / patch, d[2] / patch, d[3] * patch * patch});
  mean = PatchStatistics(g, prefix).normalised(mean);
  output_posterior(g, moments, {mean, g.affine(mean, 0)});
}

// Role vae.decode.
inline void build_flux2_decode(Graph& g, const std::string& prefix, const Sizes& sizes) {
  constexpr int64_t patch = PatchStatistics::patch;
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
  const int64_t channels = PatchStatistics::channels(g.weights(), prefix);
  Value latents = g.input("latents", {batch, height, width, channels});
  Value x = g.cast(PatchStatistics(g, prefix).restored(latents), LH_FLOAT);
  x = g.reshape(x, {batch, height * width, channels});
  x = unpatchify_channel_first(g, x, patch * height, patch * width, patch);  // [N, 2h, 2w, 32]
  g.output("image", Autoencoder(g, prefix).decode(x));
}

}  // namespace lora_host::nn
