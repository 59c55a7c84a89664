// The KL autoencoder of Wan 2.2 (TI2V 5B), of videos: [N, T, H, W, 3] <-> latents [N, t, H/16, W/16, z], where T is
// 4 (t - 1) + 1.
//
// It is Wan 2.1's (wan_video_autoencoder.hpp: chunks, convolutions that look back) of patches of 2 x 2 pixels, with
// levels that have a way around them (wan_residual_levels.hpp). Ways around know a chunk alone: of a later one a level
// that halves time has whole pairs of frames to average, and one that doubles it has two frames for each.
#pragma once

#include "nn/wan_residual_levels.hpp"
#include "nn/wan_video_autoencoder.hpp"

namespace lora_host::nn {

class WanResidualVideoAutoencoder final : public WithWaysAround<WanVideoAutoencoder> {
 public:
  static constexpr int64_t patch = 2, channels = 3 * patch * patch;

  using WithWaysAround::WithWaysAround;

 private:
  // Channels of a patch: colour, then column, then row.
  Value of_pixels(Value x) override {
    return by_frame(x, [&](Value images) {
      const Dims d = g_.shape(images);  // [N, H, W, C]
      const int64_t rows = d[1] / patch, columns = d[2] / patch;
      images = g_.permute(g_.reshape(images, {d[0], rows, patch, columns, patch, d[3]}), {0, 1, 3, 5, 4, 2});
      return g_.reshape(images, {d[0], rows, columns, d[3] * patch * patch});
    });
  }
  Value to_pixels(Value x) override {
    return by_frame(x, [&](Value patches) {
      const Dims d = g_.shape(patches);  // [N, h, w, 4 C]
      const int64_t colours = d[3] / (patch * patch);
      patches = g_.permute(g_.reshape(patches, {d[0], d[1], d[2], colours, patch, patch}), {0, 1, 5, 2, 4, 3});
      return g_.reshape(patches, {d[0], patch * d[1], patch * d[2], colours});
    });
  }

  // Both are those of images, of which a pair of frames is one with twice the channels: x0 y0 x1 y1, frames within.
  Value averages(Value x, int64_t out, const WanLevel& level) override {
    WanLevel within = level;
    if (level.frames == 2 && !first_chunk()) {
      const Dims d = g_.shape(x);  // [N, t, H, W, C]
      x = g_.permute(g_.reshape(x, {d[0] * d[1] / 2, 2, d[2], d[3], d[4]}), {0, 2, 3, 4, 1});
      x = g_.reshape(x, {d[0], d[1] / 2, d[2], d[3], 2 * d[4]});
      within.frames = 1;
    }
    return by_frame(x, [&](Value images) { return WithWaysAround::averages(images, out, within); });
  }
  Value copies(Value x, int64_t out, const WanLevel& level) override {
    const bool pairs = level.frames == 2 && !first_chunk();
    WanLevel within = level;
    if (pairs) within.frames = 1;
    Value y = by_frame(x, [&](Value images) { return WithWaysAround::copies(images, pairs ? 2 * out : out, within); });
    if (!pairs) return y;
    const Dims d = g_.shape(y);  // [N, t, H, W, 2 out]
    y = g_.permute(g_.reshape(y, {d[0] * d[1], d[2], d[3], out, 2}), {0, 4, 1, 2, 3});
    return g_.reshape(y, {d[0], 2 * d[1], d[2], d[3], out});
  }
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit. `z` latent channels, and three
// levels of a side that halve or double the size are expected: behind its patches, or before them; two of them time.
inline void check_wan_residual_video_autoencoder(const Weights& weights, const std::string& prefix, int64_t z) {
  require_wan_ends(weights, prefix, z, WanResidualVideoAutoencoder::channels);
  require_wan_levels(weights, prefix, 3);
  for (const std::string side : {"encoder.downsamples.", "decoder.upsamples."}) {
    int64_t found = 0;
    for (const WanLevel& level : WanLevel::all(weights, prefix + side)) {
      if (!level.resamples || level.frames == 1) continue;
      ++found;
      const std::string& part = level.parts.back();
      const int64_t width = weights.extent(part + ".resample.1.weight", 1);
      const int64_t made = side == "decoder.upsamples." ? 2 * width : width;
      weights.require(WanVideoAutoencoder::time_conv(part) + ".weight", {made, width, 3, 1, 1});
    }
    if (found != WanVideoAutoencoder::time_resamplings)
      throw Failure(LH_E_MODEL, prefix + side + "*: expected " + std::to_string(WanVideoAutoencoder::time_resamplings) +
                                    " levels that resample time (time_conv.weight), found " + std::to_string(found));
  }
}

}  // namespace lora_host::nn
