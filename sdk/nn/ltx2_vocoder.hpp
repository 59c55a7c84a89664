// The vocoders of LTX-2, LTX-2.3 and LTX-2.5: log-mel spectrograms [N, T, 2 bands], a hundred frames a second -> sound
// f32 [N, samples, 2], in float32 whatever the host computes in, since errors add up over a hundred layers.
//
// A network makes sound of a spectrogram (HiFi-GAN; from 2.3 on BigVGAN):
//
//   x = conv_pre(x); at each level x = up(act x), which makes time longer, then the mean of some res blocks of it, each
//   with a kernel of its own; conv_post(act x).  res block: x += conv(act(dilated conv(act x))), dilations 1, 3, 5
//
// In LTX-2 act is a leaky ReLU, and the network gives 24000 samples a second. Later models have x + sin(a x)^2 / b in
// the middle of two filters, one to double time and one to halve it again, so that no tones are made that time is too
// coarse for, and none of it in front of `up`; their network gives 16000 samples, whose spectrogram goes through a
// second one, which gives what is added to them at 48000.
//
// Levels, channels and kernels follow from the weights (the names of the published files of LTX-2.3 under `prefix`,
// e.g. "vocoder:"), by how much a level makes time longer from its kernel.
#pragma once

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "nn/convolution1d.hpp"
#include "nn/ltx2_sound_autoencoder.hpp"
#include "nn/spectrogram.hpp"

namespace lora_host::nn {

// How much longer a level with a kernel of this size makes time; 0: none has it.
constexpr int64_t ltx2_vocoder_stride(int64_t kernel) {
  return kernel == 4 || kernel == 8 ? 2 : kernel == 11 || kernel == 15 ? 5 : kernel == 12 || kernel == 16 ? 6 : 0;
}

class Ltx2Vocoder {
 public:
  // What the sound of the first network is looked at with for the second one, and how much denser that one's is.
  static constexpr int64_t hop = 80, denser = 3;
  static constexpr int64_t filter = 12;  // of the activations

  Ltx2Vocoder(Graph& g, const std::string& prefix) : g_(g), w_(g.weights()), prefix_(prefix) {}

  static bool has_second(const Weights& w, const std::string& prefix) {
    return w.has(prefix + "bwe_generator.conv_pre.weight");
  }

  Value sound(Value mel) {
    Value x = network(g_.cast(mel, LH_F32), prefix_ + "vocoder.");
    if (!has_second(w_, prefix_)) return g_.tanh(x);
    x = g_.clamp(x, -1, 1);
    return g_.clamp(g_.add(network(spectrogram(x), prefix_ + "bwe_generator."), denser_sound(x)), -1, 1);
  }

 private:
  Value network(Value x, const std::string& root) {
    const int64_t levels = w_.count(root + "ups.", ".weight");
    const int64_t blocks = w_.count(root + "resblocks.", ".convs1.0.weight") / levels;
    const bool filtered = w_.has(root + "act_post.act.alpha");
    x = conv1d(g_, x, root + "conv_pre");
    for (int64_t level = 0; level < levels; ++level) {
      const std::string up = root + "ups." + std::to_string(level);
      auto scope = g_.scope(up, LH_SCOPE_CHECKPOINT);
      if (!filtered) x = leaky(x, 0.1);
      x = conv_transpose1d(g_, x, up, ltx2_vocoder_stride(w_.extent(up + ".weight", 2)));
      Value sum;
      for (int64_t i = 0; i < blocks; ++i) {
        Value made = block(x, root + "resblocks." + std::to_string(level * blocks + i));
        sum = i == 0 ? made : g_.add(sum, made);
      }
      x = g_.affine(sum, 1 / static_cast<double>(blocks));
    }
    return conv1d(g_, filtered ? snake(x, root + "act_post") : leaky(x, 0.01), root + "conv_post");
  }

  Value block(Value x, const std::string& module) {
    const bool filtered = w_.has(module + ".acts1.0.act.alpha");
    const auto act = [&](Value y, const std::string& name) {
      return filtered ? snake(y, module + name) : leaky(y, 0.1);
    };
    for (int64_t i = 0; i < w_.count(module + ".convs1.", ".weight"); ++i) {
      const std::string number = std::to_string(i);
      Value y = conv1d(g_, act(x, ".acts1." + number), module + ".convs1." + number, 2 * i + 1);
      x = g_.add(x, conv1d(g_, act(y, ".acts2." + number), module + ".convs2." + number));
    }
    return x;
  }

  Value leaky(Value x, double slope) { return g_.max(x, g_.affine(x, slope)); }

  // Every second place of [N, T, C, 2] is one of the signal's, so that the filter that halves time is a kernel of 2
  // columns, and of rows enough for what it sees: 5 places before its own and 6 behind.
  Value snake(Value x, const std::string& module) {
    const Dims d = g_.shape(x);
    x = between(g_, x, float_param(g_, module + ".upsample.filter"), 2);
    Value turns = g_.reshape(g_.exp(float_param(g_, module + ".act.alpha")), {d[2], 1});
    Value damping = g_.affine(g_.reshape(g_.exp(float_param(g_, module + ".act.beta")), {d[2], 1}), 1, 1e-9);
    x = g_.add(x, g_.div(g_.square(g_.sin(g_.mul(x, turns))), damping));
    constexpr int64_t rows = filter / 4;
    const Dims beyond = {d[0], rows, d[2], 2};
    Value first = g_.slice(g_.slice(x, 1, 0, 1), 3, 0, 1), last = g_.slice(g_.slice(x, 1, d[1] - 1, 1), 3, 1, 1);
    x = g_.concat({g_.expand(first, beyond), x, g_.expand(last, beyond)}, 1);
    Value low = g_.pad(float_param(g_, module + ".downsample.lowpass.filter"), {0, 0, 1}, {0, 0, 1});
    low = g_.permute(g_.reshape(low, {1, filter / 2 + 1, 2}), {0, 2, 1});
    return g_.reshape(g_.conv2d(x, g_.reshape(low, {1, 2, filter / 2 + 1, 1})), d);
  }

  // Of the sound so far, nothing of what follows: [N, samples, 2] -> [N, samples / hop, 2 bands]
  Value spectrogram(Value x) {
    Value basis = float_param(g_, prefix_ + "mel_stft.stft_fn.forward_basis");
    const int64_t window = g_.shape(basis)[2], before = window - hop, behind = (hop - window % hop) % hop;
    x = g_.pad(x, {0, before, 0}, {0, behind, 0});
    x = log_mel(g_, x, basis, float_param(g_, prefix_ + "mel_stft.mel_basis"), hop);
    const Dims d = g_.shape(x);  // [N, frames, 2, bands]
    return g_.reshape(x, {d[0], d[1], d[2] * d[3]});
  }

  // The same sound with more samples, by a sine cardinal under Hann's window, 6 of its waves to each side.
  Value denser_sound(Value x) {
    constexpr double waves = 6, rolloff = 0.99;
    const int64_t reach = static_cast<int64_t>(std::ceil(waves / rolloff)) * denser;
    std::vector<float> sinc;
    for (int64_t i = -reach; i <= reach; ++i) {
      const double t = static_cast<double>(i) / denser * rolloff, angle = std::numbers::pi * t;
      const double window = std::abs(t) < waves ? std::pow(std::cos(angle / waves / 2), 2) : 0;
      sinc.push_back(static_cast<float>((i == 0 ? 1 : std::sin(angle) / angle) * window * rolloff / denser));
    }
    const Dims d = g_.shape(x);
    x = between(g_, x, g_.constant({1, 1, 2 * reach + 1}, sinc), denser);  // [N, samples, 2, denser]
    return g_.reshape(g_.permute(x, {0, 1, 3, 2}), {d[0], d[1] * denser, d[2]});
  }

  Graph& g_;
  Weights w_;
  std::string prefix_;
};

// Throws when a tensor that gives the vocoder its shape is missing or does not fit.
inline void check_ltx2_vocoder(const Weights& w, const std::string& prefix) {
  const bool second = Ltx2Vocoder::has_second(w, prefix);
  if (!second && w.has(prefix + "vocoder.act_post.act.alpha"))
    throw Failure(LH_E_MODEL, prefix +
                                  "vocoder.act_post.act.alpha: this is the vocoder of LTX-2.3 or LTX-2.5, but "
                                  "bwe_generator.*, its second network, is missing: give the published file, or its "
                                  "folder of a diffusers directory");
  const auto check = [&](const std::string& root, int64_t longer, bool filtered) {
    int64_t channels = w.require(root + "conv_pre.weight", {-1, -1, 7})[0], made = 1;
    const int64_t levels = w.count(root + "ups.", ".weight");
    const int64_t blocks = w.count(root + "resblocks.", ".convs1.0.weight");
    for (int64_t level = 0; level < levels; ++level) {
      const std::string up = root + "ups." + std::to_string(level) + ".weight";
      const Dims shape = w.require(up, {channels, -1, -1});
      const int64_t stride = ltx2_vocoder_stride(shape[2]);
      if (stride == 0)
        throw Failure(LH_E_MODEL,
                      up + ": expected a kernel of 4, 8, 11, 12, 15 or 16 places, found " + std::to_string(shape[2]));
      channels = shape[1];
      made *= stride;
    }
    if (made != longer)
      throw Failure(LH_E_MODEL, root + "ups.*: expected kernels that make time " + std::to_string(longer) +
                                    " times as long, found " + std::to_string(made) + " times");
    if (blocks == 0 || blocks % levels != 0)
      throw Failure(LH_E_MODEL, root + "resblocks.*: expected the same number for each of " + std::to_string(levels) +
                                    " levels, found " + std::to_string(blocks) + " in all");
    w.require(root + "conv_post.weight", {2, channels, 7});
    if (!filtered) return;
    for (const char* name : {".upsample.filter", ".downsample.lowpass.filter"})
      w.require(root + "act_post" + name, {1, 1, Ltx2Vocoder::filter});
  };
  check(prefix + "vocoder.", second ? 160 : 240, second);
  if (!second) return;
  check(prefix + "bwe_generator.", Ltx2Vocoder::hop * Ltx2Vocoder::denser, true);
  const Dims basis = w.require(prefix + "mel_stft.stft_fn.forward_basis", {-1, 1, -1});
  w.require(prefix + "mel_stft.mel_basis", {-1, basis[0] / 2});
}

// Samples a second that it gives.
inline int64_t ltx2_vocoder_rate(const Weights& w, const std::string& prefix) {
  return Ltx2Vocoder::has_second(w, prefix) ? 48000 : 24000;
}

// Role sound.decode.
inline void build_ltx2_sound_decode(Graph& g, const std::string& autoencoder, const std::string& vocoder,
                                    const Sizes& sizes) {
  Ltx2SoundAutoencoder network(g, autoencoder);
  Value rows = network.from_model(g.input("latents", {sizes["batch"], sizes["rows"], network.numbers()}));
  Value mel = network.in_rows(network.decode(g.cast(network.in_bands(rows), LH_FLOAT)));
  g.output("sound", Ltx2Vocoder(g, vocoder).sound(mel));
}

}  // namespace lora_host::nn
