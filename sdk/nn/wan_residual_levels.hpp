// Levels of Wan's autoencoder (wan_autoencoder.hpp) with a way around them, as Wan 2.2 and Qwen-Image 2.1 have them:
//   down: y = resampled(res(res x)) + averages(x);  up: y = resampled(res(res(res x))) + copies(x)
//
// Averages and copies move numbers between places and channels, of levels that halve or double time (those with a
// time_conv) also between frames. Of a single image, or of a video's first frame, the frame before it is nothing:
// averages are taken with zeros, and copies of it are left out.
#pragma once

#include "nn/wan_autoencoder.hpp"

namespace lora_host::nn {

// Res blocks and a resampling of a level, in order, and whether it changes the size, and time too.
struct WanLevel {
  WanLevel(const Weights& weights, const std::string& name) : parts(WanAutoencoder::parts(weights, name)) {
    if (parts.empty()) return;
    resamples = WanAutoencoder::resamples(weights, parts.back());
    frames = weights.has(parts.back() + ".time_conv.weight") ? 2 : 1;
  }

  // side: "vae:encoder.downsamples.", whose levels have lists of the same name.
  static std::vector<WanLevel> all(const Weights& weights, const std::string& side) {
    const std::string list = side.substr(side.find_last_of('.', side.size() - 2) + 1);
    const int64_t count = weights.count(side, "." + list + "0.residual.0.gamma");
    std::vector<WanLevel> levels;
    for (int64_t i = 0; i < count; ++i) levels.emplace_back(weights, side + std::to_string(i) + "." + list);
    return levels;
  }

  std::vector<std::string> parts;
  bool resamples = false;
  int64_t frames = 1;
};

// Throws where a side has another number of levels that halve or double the size.
inline void require_wan_levels(const Weights& weights, const std::string& prefix, int64_t halvings) {
  for (const std::string list : {"downsamples.", "upsamples."}) {
    const std::string side = prefix + (list == "upsamples." ? "decoder." : "encoder.") + list;
    int64_t found = 0;
    for (const WanLevel& level : WanLevel::all(weights, side)) found += level.resamples ? 1 : 0;
    if (found != halvings)
      throw Failure(LH_E_MODEL, side + "*: expected " + std::to_string(halvings) + " levels with a resampling (N." +
                                    list + "N.resample.1.weight), found " + std::to_string(found));
  }
}

// Base: an autoencoder without them, of images or of videos.
template <class Base>
class WithWaysAround : public Base {
 public:
  using Base::Base;

 protected:
  using Base::g_;
  using Base::weights_;

  Value downsamples(Value x, const std::string& side) override {
    for (const WanLevel& level : WanLevel::all(weights_, side)) {
      Value y = x;
      for (const std::string& part : level.parts) y = Base::downsample(y, part);
      x = g_.add(y, averages(x, g_.shape(y).back(), level));
    }
    return x;
  }
  Value upsamples(Value x, const std::string& side) override {
    for (const WanLevel& level : WanLevel::all(weights_, side)) {
      Value y = x;
      for (const std::string& part : level.parts) y = Base::upsample(y, part);
      x = level.resamples ? g_.add(y, copies(x, g_.shape(y).back(), level)) : y;
    }
    return x;
  }

  // x [N, H, W, C] -> [N, H/2, W/2, out]. The numbers of 2 x 2 places, of each channel with those of the frames, are
  // one list, which is cut into `out` pieces; their means.
  virtual Value averages(Value x, int64_t out, const WanLevel& level) {
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
  virtual Value copies(Value x, int64_t out, const WanLevel& level) {
    const Dims d = g_.shape(x);
    const int64_t all = out * level.frames * 4;
    x = g_.expand(g_.reshape(x, {d[0], d[1], d[2], d[3], 1}), {d[0], d[1], d[2], d[3], all / d[3]});
    x = g_.slice(g_.reshape(x, {d[0] * d[1] * d[2], out, level.frames, 4}), 2, level.frames - 1, 1);
    x = g_.permute(g_.reshape(x, {d[0], d[1], d[2], out, 2, 2}), {0, 1, 4, 2, 5, 3});
    return g_.reshape(x, {d[0], 2 * d[1], 2 * d[2], out});
  }
};

}  // namespace lora_host::nn
