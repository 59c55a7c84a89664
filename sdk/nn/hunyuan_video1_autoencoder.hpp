// The KL autoencoder of the first HunyuanVideo, of videos: [N, T, H, W, 3] <-> latents [N, t, H/8, W/8, z], T = 4 (t -
// 1) + 1.
//
//   res block: shortcut(x) + conv(silu(norm(conv(silu(norm x)))));  middle: res block, attention, res block
//   down: a convolution with strides;  up: each place twice on each axis, then a convolution
//
// All three resamplings of a side change height and width, the last two of them time as well, all but the first
// frame. Convolutions look back over time; beyond the borders and before the first frame they see what is
// nearest. In attention a frame sees itself and those before it.
//
// Norms are those of groups of channels over all frames, so that a video does not go through in chunks as that of
// HunyuanVideo 1.5 does. It goes through in windows that overlap and fade into each other, as in the vendor's program;
// up to their length it is one.
//
// Channels and z follow from the weights (the names of the original file under `prefix`, e.g. "vae:").
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "nn/latent_model.hpp"

namespace lora_host::nn {

class HunyuanVideo1Autoencoder {
 public:
  static constexpr int64_t frames_of_latent = 4, levels = 4, groups = 32;
  // In latents: a window begins with a frame of its own and has so many behind it; so many further on the next begins.
  static constexpr int64_t window = 16, stride = 12;

  HunyuanVideo1Autoencoder(Graph& g, const std::string& prefix)
      : g_(g), w_(g.weights()), prefix_(prefix), encoder_(prefix + "encoder."), decoder_(prefix + "decoder.") {}

  // video in [-1, 1] -> moments [N, t, h, w, 2z]: mean, log-variance
  Value encode(Value x) {
    return in_windows(x, frames_of_latent, 1, [&](Value frames) { return encode_window(frames); });
  }

  // latents of the autoencoder (not of the denoiser) -> video
  Value decode(Value z) {
    return in_windows(z, 1, frames_of_latent, [&](Value latents) { return decode_window(latents); });
  }

  static std::string down(int64_t level) { return "down_blocks." + std::to_string(level); }
  static std::string up(int64_t level) { return "up_blocks." + std::to_string(level); }

 private:
  // `from` frames of x for each latent but the first, `to` of what f makes of them.
  template <class F>
  Value in_windows(Value x, int64_t from, int64_t to, F f) {
    const int64_t frames = g_.shape(x)[1], latents = (frames - 1) / from + 1;
    if ((frames - 1) % from != 0)
      throw Failure(LH_E_SETTING, "a video of " + std::to_string(frames) + " frames does not divide into one and " +
                                      std::to_string(from) + " for each further latent");
    if (latents <= window) return f(x);
    std::vector<Value> made;
    Value before;
    for (int64_t at = 0; at == 0 || at < latents - 1; at += stride) {
      const int64_t length = std::min(from * window + 1, frames - from * at);
      Value part = f(g_.slice(x, 1, from * at, length));
      if (at > 0) part = faded(before, behind(part, 1), to * (window - stride));
      before = part;
      made.push_back(g_.slice(part, 1, 0, std::min(to * stride + (at == 0 ? 1 : 0), g_.shape(part)[1])));
    }
    return g_.concat(made, 1);
  }
  Value behind(Value x, int64_t frames) { return g_.slice(x, 1, frames, g_.shape(x)[1] - frames); }

  // `after`, whose first frames, `most` of them, come out of the last ones of `before`.
  Value faded(Value before, Value after, int64_t most) {
    const int64_t length = g_.shape(before)[1], both = std::min({most, length, g_.shape(after)[1]});
    std::vector<float> shares;
    for (int64_t i = 0; i < both; ++i) shares.push_back(static_cast<float>(i) / static_cast<float>(both));
    Value share = g_.cast(g_.constant({1, both, 1, 1, 1}, shares), LH_FLOAT);
    Value old = g_.slice(before, 1, length - both, both), fresh = g_.slice(after, 1, 0, both);
    Value mixed = g_.add(old, g_.mul(g_.sub(fresh, old), share));
    return both == g_.shape(after)[1] ? mixed : g_.concat({mixed, behind(after, both)}, 1);
  }

  Value encode_window(Value x) {
    x = conv(x, encoder_ + "conv_in");
    for (int64_t i = 0; i < levels; ++i) {
      const std::string level = encoder_ + down(i);
      auto scope = g_.scope(level, LH_SCOPE_CHECKPOINT);
      x = blocks(x, level);
      if (i + 1 < levels) x = conv(x, level + ".downsamplers.0.conv", i > 0 ? 2 : 1, 2);
    }
    return pointwise(head(middle(x, encoder_ + "mid_block"), encoder_), prefix_ + "quant_conv");
  }

  Value decode_window(Value z) {
    Value x = conv(pointwise(z, prefix_ + "post_quant_conv"), decoder_ + "conv_in");
    x = middle(x, decoder_ + "mid_block");
    for (int64_t i = 0; i < levels; ++i) {
      const std::string level = decoder_ + up(i);
      auto scope = g_.scope(level, LH_SCOPE_CHECKPOINT);
      x = blocks(x, level);
      if (i + 1 < levels) x = conv(twice(x, i > 0), level + ".upsamplers.0.conv");
    }
    return head(x, decoder_);
  }

  Value blocks(Value x, const std::string& level) {
    const int64_t count = w_.count(level + ".resnets.", ".norm1.weight");
    for (int64_t i = 0; i < count; ++i) x = resnet(x, level + ".resnets." + std::to_string(i));
    return x;
  }
  Value resnet(Value x, const std::string& module) {
    Value h = activated_conv(norm(x, module + ".norm1"), module + ".conv1");
    h = activated_conv(norm(h, module + ".norm2"), module + ".conv2");
    const std::string shortcut = module + ".conv_shortcut.conv";
    return g_.add(w_.has(shortcut + ".weight") ? pointwise(x, shortcut) : x, h);
  }
  Value middle(Value x, const std::string& module) {
    auto scope = g_.scope(module, LH_SCOPE_CHECKPOINT);
    x = attention(resnet(x, module + ".resnets.0"), module + ".attentions.0");
    return resnet(x, module + ".resnets.1");
  }
  Value head(Value x, const std::string& root) {
    return activated_conv(norm(x, root + "conv_norm_out"), root + "conv_out");
  }

  // One head over all places of this frame and of those before.
  Value attention(Value x, const std::string& module) {
    const Dims d = g_.shape(x);  // [N, T, H, W, C]
    const int64_t places = d[2] * d[3];
    const Value h = g_.reshape(norm(x, module + ".group_norm"), {d[0], d[1] * places, d[4]});
    const auto tokens = [&](const char* part) {
      return g_.reshape(pointwise(h, module + part), {d[0], d[1] * places, 1, d[4]});
    };
    const Value q = tokens(".to_q"), k = tokens(".to_k"), v = tokens(".to_v");
    std::vector<Value> made;
    for (int64_t frame = 0; frame < d[1]; ++frame)
      made.push_back(g_.attention(g_.slice(q, 1, frame * places, places), g_.slice(k, 1, 0, (frame + 1) * places),
                                  g_.slice(v, 1, 0, (frame + 1) * places), 1.0 / std::sqrt(static_cast<double>(d[4]))));
    const Value y = made.size() == 1 ? made[0] : g_.concat(made, 1);
    return g_.add(x, g_.reshape(pointwise(g_.reshape(y, {d[0], d[1] * places, d[4]}), module + ".to_out.0"), d));
  }

  Value norm(Value x, const std::string& module) {
    const Dims d = g_.shape(x);
    return g_.reshape(g_.group_norm(g_.reshape(x, {d[0], d[1] * d[2], d[3], d[4]}), module, groups, 1e-6), d);
  }

  Value conv(Value x, const std::string& module, int64_t time_stride = 1, int64_t side_stride = 1) {
    return conv_of(x, module, time_stride, side_stride, [](Value part) { return part; });
  }
  Value activated_conv(Value x, const std::string& module) {
    return conv_of(x, module, 1, 1, [&](Value part) { return g_.silu(part); });
  }
  // A few frames at a time, since what they see is a copy, with what stands beyond the borders.
  template <class F>
  Value conv_of(Value x, const std::string& module, int64_t time_stride, int64_t side_stride, F seen) {
    constexpr int64_t at_once = 4, back = 2;
    const int64_t made = (g_.shape(x)[1] - 1) / time_stride + 1;
    std::vector<Value> parts;
    for (int64_t first = 0; first < made; first += at_once) {
      const int64_t begin = time_stride * first - back, end = time_stride * (std::min(first + at_once, made) - 1) + 1;
      Value part = seen(g_.slice(x, 1, std::max<int64_t>(begin, 0), end - std::max<int64_t>(begin, 0)));
      for (int64_t missing = begin; missing < 0; ++missing) part = g_.concat({g_.slice(part, 1, 0, 1), part}, 1);
      parts.push_back(g_.conv3d(framed(framed(part, 3), 2), module + ".conv", {time_stride, side_stride, side_stride}));
    }
    return parts.size() == 1 ? parts[0] : g_.concat(parts, 1);
  }
  // What stands at both ends of an axis once more.
  Value framed(Value x, int64_t axis) {
    const int64_t last = g_.shape(x)[static_cast<size_t>(axis)] - 1;
    return g_.concat({g_.slice(x, axis, 0, 1), x, g_.slice(x, axis, last, 1)}, axis);
  }

  // Twice as high and wide; with `time` each frame but the first twice, too.
  Value twice(Value x, bool time) {
    Dims d = g_.shape(x);
    if (time && d[1] > 1) {
      Value rest = g_.reshape(behind(x, 1), {d[0], d[1] - 1, 1, d[2], d[3], d[4]});
      rest = g_.expand(rest, {d[0], d[1] - 1, 2, d[2], d[3], d[4]});
      x = g_.concat({g_.slice(x, 1, 0, 1), g_.reshape(rest, {d[0], 2 * (d[1] - 1), d[2], d[3], d[4]})}, 1);
      d = g_.shape(x);
    }
    Value y = g_.upsample_nearest2x(g_.reshape(x, {d[0] * d[1], d[2], d[3], d[4]}));
    return g_.reshape(y, {d[0], d[1], 2 * d[2], 2 * d[3], d[4]});
  }

  // Files have it as a linear or as a convolution.
  Value pointwise(Value x, const std::string& module) {
    Value weight = g_.param(module + ".weight");
    const Dims d = g_.shape(weight);
    return g_.linear(x, d.size() == 2 ? weight : g_.reshape(weight, {d[0], d[1]}), g_.param(module + ".bias"));
  }

  Graph& g_;
  Weights w_;
  std::string prefix_, encoder_, decoder_;
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit: `z` latent channels (0:
// whatever the decoder takes), four levels, of which three change the size.
inline void check_hunyuan_video1_autoencoder(const Weights& weights, const std::string& prefix, int64_t z) {
  using Network = HunyuanVideo1Autoencoder;
  const auto conv = [&](const std::string& module, int64_t out, int64_t in) {
    return weights.require(module + ".conv.weight", {out, in, 3, 3, 3})[0];
  };
  const auto pointwise = [&](const std::string& module, int64_t out, int64_t in) {
    const bool linear = weights.require(module + ".weight").size() == 2;
    weights.require(module + ".weight", linear ? Dims{out, in} : Dims{out, in, 1, 1, 1});
  };
  z = weights.require(prefix + "decoder.conv_in.conv.weight", {-1, z > 0 ? z : -1, 3, 3, 3})[1];
  pointwise(prefix + "quant_conv", 2 * z, 2 * z);
  pointwise(prefix + "post_quant_conv", z, z);
  for (const bool up : {false, true}) {
    const std::string root = prefix + (up ? "decoder." : "encoder.");
    const std::string side = root + (up ? "up_blocks." : "down_blocks.");
    if (const int64_t found = weights.count(side, ".resnets.0.norm1.weight"); found != Network::levels)
      throw Failure(LH_E_MODEL, side + "*: expected " + std::to_string(Network::levels) + " levels, found " +
                                    std::to_string(found));
    int64_t channels = conv(root + "conv_in", -1, up ? z : 3);
    for (int64_t i = 0; i < Network::levels; ++i) {
      const std::string level = root + (up ? Network::up(i) : Network::down(i));
      const int64_t blocks = weights.count(level + ".resnets.", ".norm1.weight");
      for (int64_t b = 0; b < blocks; ++b) {
        const std::string block = level + ".resnets." + std::to_string(b);
        const int64_t made = conv(block + ".conv1", -1, channels);
        if (made % Network::groups != 0)
          throw Failure(LH_E_MODEL, block +
                                        ".conv1.conv.weight: expected a multiple of 32 rows (groups of a norm), "
                                        "found " +
                                        std::to_string(made));
        conv(block + ".conv2", made, made);
        if (made != channels) pointwise(block + ".conv_shortcut.conv", made, channels);
        channels = made;
      }
      if (i + 1 < Network::levels)
        conv(level + (up ? ".upsamplers.0.conv" : ".downsamplers.0.conv"), channels, channels);
    }
    conv(root + "conv_out", up ? 3 : 2 * z, channels);
  }
}

// Latents in model space are z times this.
inline constexpr LatentScale hunyuan_video1_latents = {0.476986, 0};

// A model of videos whose latents are this autoencoder's.
class HunyuanVideo1LatentModel : public LatentModel {
 protected:
  using LatentModel::LatentModel;

 private:
  void build_encode(Graph& g, const Sizes& sizes) const final {
    Value video = g.input("image", {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], 3});
    output_posterior(g, HunyuanVideo1Autoencoder(g, "vae:").encode(video), hunyuan_video1_latents);
  }
  void build_decode(Graph& g, const Sizes& sizes) const final {
    const int64_t z = g.weights().require("vae:decoder.conv_in.conv.weight")[1];
    Value latents = g.input("latents", {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], z});
    g.output("image",
             HunyuanVideo1Autoencoder(g, "vae:").decode(g.affine(latents, 1.0 / hunyuan_video1_latents.scale)));
  }
};

}  // namespace lora_host::nn
