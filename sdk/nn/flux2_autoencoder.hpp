// The autoencoder of Flux.2 and its relatives: the convolutional one of nn/autoencoder.hpp with 32 channels, whose
// latents are cut into patches of 2x2 and brought to mean 0 and variance 1 by the statistics of a batch norm, a pair
// for each of the 128 channels. In files it is that of nn/autoencoder.yaml, with the tensors bn.running_mean and
// bn.running_var.
#pragma once

#include <string>

#include "nn/autoencoder.hpp"
#include "nn/mmdit.hpp"

namespace lora_host::nn {

// What models with the same tensors take differently.
struct Flux2Latents {
  double eps = 1e-4;   // beside the variances
  bool drawn = false;  // in training from what the encoder says; else they are its mean
};

// What turns patches into latents of the model, and back.
class PatchStatistics {
 public:
  static constexpr int64_t patch = 2;

  PatchStatistics(Graph& g, const std::string& prefix, double eps)
      : g_(g),
        mean_(g.cast(g.param(prefix + mean_key), LH_F32)),
        deviation_(g.sqrt(g.affine(g.cast(g.param(prefix + variance_key), LH_F32), 1, eps))) {}

  // `channels` are those of the model.
  static void check(const Weights& weights, const std::string& prefix, int64_t channels) {
    for (const char* key : {mean_key, variance_key}) weights.require(prefix + key, {channels});
  }
  static int64_t channels(const Weights& weights, const std::string& prefix) {
    return weights.extent(prefix + mean_key, 0);
  }

  Value normalised(Value x) const { return scaled(g_.sub(x, mean_)); }  // f32 [N, h, w, C]
  Value scaled(Value deviation) const { return g_.div(deviation, deviation_); }
  Value restored(Value x) const { return g_.add(g_.mul(g_.cast(x, LH_F32), deviation_), mean_); }

 private:
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

// [N, 2h, 2w, C] -> [N, h, w, 4 C]
inline Value cut_into_patches(Graph& g, Value x) {
  constexpr int64_t patch = PatchStatistics::patch;
  const Dims d = g.shape(x);
  x = patchify_channel_first(g, x, patch);  // [N, h w, 4 C]
  return g.reshape(x, {d[0], d[1] / patch, d[2] / patch, d[3] * patch * patch});
}

// Role vae.encode.
inline void build_flux2_encode(Graph& g, const std::string& prefix, const Sizes& sizes,
                               const Flux2Latents& latents = {}) {
  Value image = g.input("image", {sizes["batch"], sizes["height"], sizes["width"], 3});
  Value moments = Autoencoder(g, prefix).encode(image);
  const Posterior posterior = posterior_of(g, moments);  // [N, 2h, 2w, 32]
  const PatchStatistics statistics(g, prefix, latents.eps);
  Value mean = statistics.normalised(cut_into_patches(g, posterior.mean));
  Value deviation = latents.drawn ? statistics.scaled(cut_into_patches(g, posterior.deviation)) : g.affine(mean, 0);
  output_posterior(g, moments, {mean, deviation});
}

// Role vae.decode.
inline void build_flux2_decode(Graph& g, const std::string& prefix, const Sizes& sizes,
                               const Flux2Latents& latents = {}) {
  constexpr int64_t patch = PatchStatistics::patch;
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
  const int64_t channels = PatchStatistics::channels(g.weights(), prefix);
  Value x = g.input("latents", {batch, height, width, channels});
  x = g.cast(PatchStatistics(g, prefix, latents.eps).restored(x), LH_FLOAT);
  x = g.reshape(x, {batch, height * width, channels});
  x = unpatchify_channel_first(g, x, patch * height, patch * width, patch);  // [N, 2h, 2w, 32]
  g.output("image", Autoencoder(g, prefix).decode(x));
}

}  // namespace lora_host::nn
