// The KL autoencoder of HunyuanVideo 1.5, of videos: [N, T, H, W, 3] <-> latents [N, t, H/16, W/16, z], T = 4 (t - 1)
// + 1.
//
// Levels move numbers between places, frames and channels, as those of nn/shuffle_autoencoder.hpp do without time:
//   down: y = to_channels(conv(x)) + means(to_channels(x));  up: y = to_places(conv(x) + copies(x))
// Two levels of a side halve or double time as well, all but the first frame, which has half of the numbers: down it is
// there twice, and of what goes up half is left out. A video goes through in chunks (nn/video_chunks.hpp).
//
// Channels, z and which levels change time follow from the weights (the original names under `prefix`, e.g. "vae:").
#pragma once

#include "nn/hunyuan_video_layers.hpp"
#include "nn/shuffle_autoencoder.hpp"

namespace lora_host::nn {

class HunyuanVideoAutoencoder : private HunyuanVideoLayers {
 public:
  static constexpr int64_t frames_of_latent = 4, levels = 5, time_levels = 2;

  HunyuanVideoAutoencoder(Graph& g, std::string prefix) : HunyuanVideoLayers(g, std::move(prefix)) {}

  // video in [-1, 1] -> moments [N, t, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    return chunks_.each(x, frames_of_latent, [&](Value chunk) { return encode_chunk(chunk); });
  }

  // latents of the autoencoder (not of the denoiser) -> video
  Value decode(Value z) {
    return chunks_.each(z, 1, [&](Value chunk) { return decode_chunk(chunk); });
  }

  // A level, and what changes the size behind all but the last.
  struct Level {
    Level(const Weights& weights, const std::string& side, int64_t index)
        : name(side + std::to_string(index)),
          resampling(name + (side.ends_with("up.") ? ".upsample.conv" : ".downsample.conv")),
          channels(width(weights, name)),
          blocks(weights.count(name + ".block.", ".norm1.gamma")) {
      if (index + 1 == levels) return;
      next = width(weights, side + std::to_string(index + 1));
      const int64_t made = weights.require(resampling + ".conv.weight", {-1, channels, 3, 3, 3})[0];
      for (const int64_t count : {4, 8})
        if (side.ends_with("up.") ? made == count * next : next == count * made) places = count;
    }
    bool resamples() const { return next > 0; }
    bool time() const { return places == 8; }

    std::string name, resampling;
    int64_t channels, blocks, next = 0;  // channels of the next level
    int64_t places = 0;                  // that become one, or that one becomes; with two frames 8

   private:
    static int64_t width(const Weights& weights, const std::string& level) {
      return weights.require(level + ".block.0.norm1.gamma", {-1, 1, 1, 1})[0];
    }
  };

 private:
  Value encode_chunk(Value x) {
    const std::string root = prefix_ + "encoder.";
    x = conv(x, root + "conv_in");
    for (int64_t i = 0; i < levels; ++i) {
      const Level level(weights_, root + "down.", i);
      auto scope = g_.scope(level.name, LH_SCOPE_CHECKPOINT);
      x = blocks(x, level);
      if (level.resamples()) x = down(x, level);
    }
    x = middle(x, root + "mid");
    Value moments = head(x, root);
    return g_.add(moments, channel_means(g_, x, g_.shape(moments)[4]));
  }

  Value decode_chunk(Value z) {
    const std::string root = prefix_ + "decoder.";
    Value x = conv(z, root + "conv_in");
    x = middle(g_.add(x, channel_copies(g_, z, g_.shape(x)[4])), root + "mid");
    for (int64_t i = 0; i < levels; ++i) {
      const Level level(weights_, root + "up.", i);
      auto scope = g_.scope(level.name, LH_SCOPE_CHECKPOINT);
      x = blocks(x, level);
      if (level.resamples()) x = up(x, level);
    }
    return head(x, root);
  }

  Value down(Value x, const Level& level) {
    const bool apart = level.time() && chunks_.first();
    const int64_t frames = level.time() && !apart ? 2 : 1;
    Value y = to_channels(conv(x, level.resampling), frames);
    if (apart) y = g_.concat({y, y}, -1);
    return g_.add(y, channel_means(g_, to_channels(x, frames), level.next));
  }

  Value up(Value x, const Level& level) {
    const bool apart = level.time() && chunks_.first();
    Value y = conv(x, level.resampling);
    if (apart) {  // of each of 2 x 2 places the first half
      const Dims d = g_.shape(y);
      y = g_.slice(g_.reshape(y, {d[0], d[1], d[2], d[3], 4, 2 * level.next}), -1, 0, level.next);
      y = g_.reshape(y, {d[0], d[1], d[2], d[3], 4 * level.next});
    }
    y = g_.add(y, channel_copies(g_, x, g_.shape(y)[4]));
    return to_places(y, level.time() && !apart ? 2 : 1);
  }

  // [N, T, H, W, C] -> [N, T/t, H/2, W/2, 4tC]: the numbers of t frames of 2 x 2 places, the channel fastest.
  Value to_channels(Value x, int64_t t) {
    const Dims d = g_.shape(x);
    x = g_.reshape(x, {d[0], d[1] / t, t, d[2] / 2, 2, d[3] / 2, 2, d[4]});
    x = g_.permute(x, {0, 1, 3, 5, 2, 4, 6, 7});
    return g_.reshape(x, {d[0], d[1] / t, d[2] / 2, d[3] / 2, 4 * t * d[4]});
  }
  // [N, T, H, W, 4tC] -> [N, tT, 2H, 2W, C]
  Value to_places(Value x, int64_t t) {
    const Dims d = g_.shape(x);
    x = g_.reshape(x, {d[0], d[1], d[2], d[3], t, 2, 2, d[4] / (4 * t)});
    x = g_.permute(x, {0, 1, 4, 2, 5, 3, 6, 7});
    return g_.reshape(x, {d[0], t * d[1], 2 * d[2], 2 * d[3], d[4] / (4 * t)});
  }

  Value blocks(Value x, const Level& level) {
    for (int64_t i = 0; i < level.blocks; ++i) x = resnet(x, level.name + ".block." + std::to_string(i));
    return x;
  }
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit: `z` latent channels (0:
// whatever the decoder takes), five levels, of which four change the size and two of these time as well.
inline void check_hunyuan_video_autoencoder(const Weights& weights, const std::string& prefix, int64_t z) {
  using Network = HunyuanVideoAutoencoder;
  const auto conv = [&](const std::string& module, int64_t out, int64_t in) {
    return weights.require(module + ".conv.weight", {out, in, 3, 3, 3})[0];
  };
  const auto divides = [](const std::string& module, int64_t channels, int64_t by) {
    if (by == 0 || channels % by != 0)
      throw Failure(LH_E_MODEL, module + ".conv.weight: expected a multiple of " + std::to_string(by) +
                                    " channels, found " + std::to_string(channels));
  };
  z = weights.require(prefix + "decoder.conv_in.conv.weight", {-1, z > 0 ? z : -1, 3, 3, 3})[1];
  for (const bool up : {false, true}) {
    const std::string root = prefix + (up ? "decoder." : "encoder."), side = root + (up ? "up." : "down.");
    if (const int64_t found = weights.count(side, ".block.0.norm1.gamma"); found != Network::levels)
      throw Failure(LH_E_MODEL, side + "*: expected " + std::to_string(Network::levels) + " levels, found " +
                                    std::to_string(found));
    int64_t channels = conv(root + "conv_in", -1, up ? z : 3), time_levels = 0;
    if (up) divides(root + "conv_in", channels, z);
    for (int64_t i = 0; i < Network::levels; ++i) {
      const Network::Level level(weights, side, i);
      for (int64_t block = 0; block < level.blocks; ++block)
        for (const char* part : {".conv1", ".conv2"})
          conv(level.name + ".block." + std::to_string(block) + part, channels, channels);
      if (!level.resamples()) break;
      const int64_t made = conv(level.resampling, -1, channels);
      if (level.places == 0)
        throw Failure(LH_E_MODEL, level.resampling + ".conv.weight: expected " +
                                      (up ? "4 or 8 times " : "a quarter or an eighth of ") +
                                      std::to_string(level.next) + " rows, found " + std::to_string(made));
      if (up)
        divides(level.resampling, made, channels);
      else
        divides(level.resampling, level.places * channels, level.next);
      time_levels += level.time() ? 1 : 0;
      channels = level.next;
    }
    if (time_levels != Network::time_levels)
      throw Failure(LH_E_MODEL, side + "*: expected " + std::to_string(Network::time_levels) +
                                    " levels that resample time, found " + std::to_string(time_levels));
    conv(root + "conv_out", up ? 3 : 2 * z, channels);
    if (!up) divides(root + "conv_out", channels, 2 * z);
  }
}

// Latents in model space are z times this.
inline constexpr LatentScale hunyuan_video_latents = {1.03682, 0};

// A model of videos whose latents are this autoencoder's.
class HunyuanVideoLatentModel : public LatentModel {
 protected:
  using LatentModel::LatentModel;

 private:
  void build_encode(Graph& g, const Sizes& sizes) const final {
    Value video = g.input("image", {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], 3});
    output_posterior(g, HunyuanVideoAutoencoder(g, "vae:").encode(video), hunyuan_video_latents);
  }
  void build_decode(Graph& g, const Sizes& sizes) const final {
    const int64_t z = g.weights().extent("vae:decoder.conv_in.conv.weight", 1);
    Value latents = g.input("latents", {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], z});
    g.output("image", HunyuanVideoAutoencoder(g, "vae:").decode(g.affine(latents, 1.0 / hunyuan_video_latents.scale)));
  }
};

}  // namespace lora_host::nn
