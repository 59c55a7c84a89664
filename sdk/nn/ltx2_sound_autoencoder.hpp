// The autoencoder of sound of LTX-2, LTX-2.3 and LTX-2.5, which is one: log-mel spectrograms [N, T, bands, channels]
// <-> latents [N, rows, bands/4, z], where a row of the denoiser is all of a moment, the channel the slowest. T = 4
// rows - 3.
//
// Its convolutions see zeros beyond both ends of the bands, and in time look back alone:
//
//   res block: x + conv(silu(norm(conv(silu(norm x)))));  head: conv(silu(norm x)); norms are RMS over channels
//   down: halves bands and time, the first frame with two of zeros in front; up: the inverse, without its first frame
//
// Sound is 16000 samples a second. A spectrum is taken every 160, of 1024 samples around it; in front of the first one
// the sound is mirrored. So the four frames of a row are 640 samples, and behind the last row is more sound than it
// sees.
//
// Levels, blocks, channels, z and bands follow from the weights (the names of the published files under `prefix`, e.g.
// "audio_vae:").
#pragma once

#include <string>
#include <vector>

#include "nn/autoencoder.hpp"
#include "nn/spectrogram.hpp"

namespace lora_host::nn {

class Ltx2SoundAutoencoder {
 public:
  static constexpr int64_t rate = 16000, hop = 160, window = 1024, hops_of_row = 4, samples_of_row = hops_of_row * hop;

  Ltx2SoundAutoencoder(Graph& g, const std::string& prefix)
      : g_(g), w_(g.weights()), encoder_(prefix + "encoder."), decoder_(prefix + "decoder."), prefix_(prefix) {}

  // sound f32 [N, samples_of_row rows, channels] -> log-mel spectrogram f32 [N, T, bands, channels]
  Value spectrogram(Value sound) {
    const Dims d = g_.shape(sound);
    const int64_t frames = frames_of(d[1] / samples_of_row), half = window / 2, seen = (window + hop - 1) / hop;
    std::vector<int32_t> mirrored;
    for (int64_t n = 0; n < d[0]; ++n)
      for (int64_t i = half; i > 0; --i) mirrored.push_back(static_cast<int32_t>(i));
    Value x = g_.concat({g_.take(sound, g_.constant({d[0], half}, mirrored)), sound}, 1);
    x = g_.slice(x, 1, 0, (frames + seen - 1) * hop);
    const int64_t bands = bands_of_latent() << (levels(encoder_ + "down.") - 1);
    Value mel = log_mel(g_, x, fourier_basis(g_, window), mel_bands(g_, bands, half + 1, rate), hop);
    return g_.permute(mel, {0, 1, 3, 2});
  }

  // log-mel spectrogram -> [N, rows, bands/4, 2z]: means, then log-variances
  Value encode(Value x) {
    x = look_back(g_.cast(x, LH_FLOAT), encoder_ + "conv_in");
    const int64_t all = levels(encoder_ + "down.");
    for (int64_t level = 0; level < all; ++level) {
      const std::string down = encoder_ + "down." + std::to_string(level);
      auto scope = g_.scope(down, LH_SCOPE_CHECKPOINT);
      x = blocks(x, down);
      if (level + 1 < all) x = g_.conv2d(x, down + ".downsample.conv", 2, {2, 0, 0, 1});
    }
    return look_back(activated(middle(x, encoder_ + "mid")), encoder_ + "conv_out");
  }

  // latents of the autoencoder -> log-mel spectrogram
  Value decode(Value x) {
    x = middle(look_back(x, decoder_ + "conv_in"), decoder_ + "mid");
    for (int64_t level = levels(decoder_ + "up."); level-- > 0;) {
      const std::string up = decoder_ + "up." + std::to_string(level);
      auto scope = g_.scope(up, LH_SCOPE_CHECKPOINT);
      x = blocks(x, up);
      if (level == 0) continue;
      x = look_back(g_.upsample_nearest2x(x), up + ".upsample.conv");
      x = g_.slice(x, 1, 1, g_.shape(x)[1] - 1);
    }
    return look_back(activated(x), decoder_ + "conv_out");
  }

  // [N, rows, bands/4, z] -> [N, rows, numbers], and back
  Value in_rows(Value latents) {
    const Dims d = g_.shape(latents);
    return g_.reshape(g_.permute(latents, {0, 1, 3, 2}), {d[0], d[1], d[2] * d[3]});
  }
  Value in_bands(Value rows) {
    const Dims d = g_.shape(rows);
    const int64_t bands = bands_of_latent();
    return g_.permute(g_.reshape(rows, {d[0], d[1], d[2] / bands, bands}), {0, 1, 3, 2});
  }
  // Rows as they are in model space, f32, and back.
  Value to_model(Value rows) {
    return g_.div(g_.sub(g_.cast(rows, LH_F32), statistic("mean-of-means")), statistic("std-of-means"));
  }
  Value from_model(Value rows) {
    return g_.add(g_.mul(g_.cast(rows, LH_F32), statistic("std-of-means")), statistic("mean-of-means"));
  }

  static int64_t frames_of(int64_t rows) { return hops_of_row * (rows - 1) + 1; }
  int64_t numbers() const { return w_.extent(prefix_ + "per_channel_statistics.mean-of-means", 0); }  // of a row

 private:
  int64_t bands_of_latent() const { return numbers() / w_.extent(decoder_ + "conv_in.conv.weight", 1); }
  int64_t levels(const std::string& side) const { return w_.count(side, ".block.0.conv1.conv.weight"); }

  Value blocks(Value x, const std::string& level) {
    const int64_t count = w_.count(level + ".block.", ".conv1.conv.weight");
    for (int64_t i = 0; i < count; ++i) x = block(x, level + ".block." + std::to_string(i));
    return x;
  }

  Value middle(Value x, const std::string& module) {
    auto scope = g_.scope(module, LH_SCOPE_CHECKPOINT);
    return block(block(x, module + ".block_1"), module + ".block_2");
  }

  Value block(Value x, const std::string& module) {
    Value y = look_back(activated(x), module + ".conv1");
    y = look_back(activated(y), module + ".conv2");
    const std::string shortcut = module + ".nin_shortcut.conv";
    return g_.add(w_.has(shortcut + ".weight") ? g_.conv2d(x, shortcut) : x, y);
  }

  Value activated(Value x) { return g_.silu(g_.rms_norm(x, 1e-6)); }
  Value look_back(Value x, const std::string& module) { return g_.conv2d(x, module + ".conv", 1, {2, 1, 0, 1}); }

  Value statistic(const std::string& name) {
    return g_.cast(g_.param(prefix_ + "per_channel_statistics." + name), LH_F32);
  }

  Graph& g_;
  Weights w_;
  std::string encoder_, decoder_, prefix_;
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit: `numbers` of a row of latents
// (0: whatever the statistics are of).
inline void check_ltx2_sound_autoencoder(const Weights& w, const std::string& prefix, int64_t numbers) {
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  const std::string statistics = prefix + "per_channel_statistics.";
  numbers = w.require(statistics + "mean-of-means", {numbers > 0 ? numbers : -1})[0];
  w.require(statistics + "std-of-means", {numbers});
  const int64_t z = w.require(decoder + "conv_in.conv.weight", {-1, -1, 3, 3})[1];
  if (numbers % z != 0)
    throw Failure(LH_E_MODEL, statistics + "mean-of-means: expected a multiple of the " + std::to_string(z) +
                                  " channels of " + decoder + "conv_in.conv.weight, found " + std::to_string(numbers));
  for (const bool up : {false, true}) {
    const std::string root = up ? decoder : encoder, side = root + (up ? "up." : "down.");
    constexpr int64_t levels = 3;  // two of them change the size, 2-fold each
    if (const int64_t found = w.count(side, ".block.0.conv1.conv.weight"); found != levels)
      throw Failure(LH_E_MODEL, side + "*: expected 3 levels, found " + std::to_string(found));
    w.require(root + (up ? "conv_out" : "conv_in") + ".conv.weight", up ? Dims{2, -1, 3, 3} : Dims{-1, 2, 3, 3});
    for (int64_t level = 0; level < levels; ++level) {
      const std::string attention = side + std::to_string(level) + ".attn.";
      if (const std::string found = w.first_with_prefix(attention); !found.empty())
        throw Failure(LH_E_MODEL, found + ": this autoencoder of sound has attention, those of LTX-2 have none");
    }
  }
  w.require(encoder + "conv_out.conv.weight", {2 * z, -1, 3, 3});
}

// Role sound.encode. Such models are trained on the means, as on those of the video: there is nothing to draw.
inline void build_ltx2_sound_encode(Graph& g, const std::string& prefix, const Sizes& sizes) {
  using Network = Ltx2SoundAutoencoder;
  const int64_t samples = sizes["samples"];
  if (samples % Network::samples_of_row != 0)
    throw Failure(LH_E_SETTING, "LTX-2 encodes a multiple of " + std::to_string(Network::samples_of_row) +
                                    " samples of sound, found " + std::to_string(samples));
  Network network(g, prefix);
  Value made = network.encode(network.spectrogram(g.input("sound", {sizes["batch"], samples, 2}, LH_F32)));
  const int64_t z = g.shape(made)[3] / 2;
  const Value means = network.in_rows(g.slice(made, -1, 0, z));
  const Value moments = g.concat({means, network.in_rows(g.slice(made, -1, z, z))}, -1);
  const Value latents = network.to_model(means);
  output_posterior(g, moments, {latents, g.affine(latents, 0)});
}

}  // namespace lora_host::nn
