// The autoencoders of LTX-2, LTX-2.3 and LTX-2.5, of videos: [N, T, H, W, 3] <-> latents [N, t, H/32, W/32, z], T = 8
// (t - 1)
// + 1.
//
// A side is a list of parts, which are res blocks or change the size, of patches of 4 x 4 pixels:
//
//   res block: x + conv(silu(norm(conv(silu(norm x)))));  head: conv(silu(norm x)); norms are RMS over channels
//   down: to_channels(conv(x)) + means(to_channels(x))
//   up: to_places(conv(x)) + copies(to_places(x)), from 2.3 on the first alone
//
// A part halves or doubles time, both sides, or all three, which follows from its channels. Where time is halved the
// first frame is there twice; where it is doubled the first one of two is left out.
//
// The encoder looks back over time, so that a video goes through in chunks (video_chunks.hpp). The decoder looks
// both ways, and a video goes through as a whole. Beyond the first frame, and the last one of the decoder, convolutions
// see that frame again; beyond the borders zeros, the decoder of LTX-2 what is reflected.
//
// Channels, z and which parts change what follow from the weights (the names of the published files under `prefix`,
// e.g. "vae:").
#pragma once

#include <string>
#include <vector>

#include "nn/latent_model.hpp"
#include "nn/shuffle_autoencoder.hpp"
#include "nn/video_chunks.hpp"

namespace lora_host::nn {

inline std::string ltx2_conv(const std::string& module) { return module + ".conv.weight"; }

struct Ltx2Part {
  std::string name;
  int64_t blocks = 0;          // res blocks, or none:
  int64_t next = 0;            // channels behind a part that changes the size
  int64_t time = 1, side = 1;  // by how much
};

// Of `side`.*, whose first part takes `channels`.
inline std::vector<Ltx2Part> ltx2_parts(const Weights& w, const std::string& side, int64_t channels) {
  std::vector<Ltx2Part> out;
  for (int64_t i = 0;; ++i) {
    Ltx2Part part{.name = side + std::to_string(i)};
    part.blocks = w.count(part.name + ".res_blocks.", ".conv1.conv.weight");
    if (part.blocks == 0 && !w.has(ltx2_conv(part.name + ".conv"))) return out;
    for (int64_t b = 0; b < part.blocks; ++b)
      for (const char* conv : {".conv1", ".conv2"})
        w.require(ltx2_conv(part.name + ".res_blocks." + std::to_string(b) + conv), {channels, channels, 3, 3, 3});
    if (part.blocks == 0) {
      const bool up = side.ends_with("up_blocks.");
      const int64_t made = w.require(ltx2_conv(part.name + ".conv"), {-1, channels, 3, 3, 3})[0];
      const std::string behind = ltx2_conv(side + std::to_string(i + 1) + ".res_blocks.0.conv1");
      part.next = channels = w.extent(behind, 0);
      const int64_t places = up ? made / part.next : part.next / made;
      part.time = places == 2 || places == 8 ? 2 : 1;
      part.side = places == 4 || places == 8 ? 2 : 1;
      if (part.time * part.side * part.side != places || (up ? made : part.next) % places != 0)
        throw Failure(LH_E_MODEL,
                      ltx2_conv(part.name + ".conv") + ": expected 2, 4 or 8 times " +
                          (up ? "the channels of " + behind + ", " + std::to_string(part.next) + ", as rows"
                              : "fewer rows than the channels of " + behind + ", " + std::to_string(part.next)) +
                          ", found " + std::to_string(made));
    }
    out.push_back(std::move(part));
  }
}

class Ltx2Autoencoder {
 public:
  static constexpr int64_t frames_of_latent = 8, pixels_of_place = 32, patch = 4, pixel_channels = 3;

  Ltx2Autoencoder(Graph& g, const std::string& prefix)
      : g_(g), w_(g.weights()), encoder_(prefix + "encoder."), decoder_(prefix + "decoder."), chunks_(g) {}

  // video -> [N, t, h, w, z + 1]: means, and one log-variance for all
  Value encode(Value x) {
    const std::vector<Ltx2Part> down =
        ltx2_parts(w_, encoder_ + "down_blocks.", w_.extent(ltx2_conv(encoder_ + "conv_in"), 0));
    return chunks_.each(x, frames_of_latent, [&](Value chunk) { return encode_chunk(chunk, down); });
  }

  // latents of the autoencoder -> video
  Value decode(Value z) {
    const std::vector<Ltx2Part> up =
        ltx2_parts(w_, decoder_ + "up_blocks.", w_.extent(ltx2_conv(decoder_ + "conv_in"), 0));
    residual_ = reflect_ = up.size() < 9;  // LTX-2's; later ones have a fourth part that changes the size
    Value x = look_around(z, decoder_ + "conv_in");
    for (const Ltx2Part& part : up) {
      auto scope = g_.scope(part.name, LH_SCOPE_CHECKPOINT);
      if (part.blocks > 0)
        x = blocks(x, part, &Ltx2Autoencoder::look_around);
      else
        x = this->up(x, part);
    }
    x = look_around(activated(x), decoder_ + "conv_out");
    const Dims d = g_.shape(x);  // of a patch the row is the fastest
    x = g_.reshape(x, {d[0], d[1], d[2], d[3], pixel_channels, patch, patch});
    x = g_.permute(x, {0, 1, 2, 6, 3, 5, 4});
    return g_.reshape(x, {d[0], d[1], d[2] * patch, d[3] * patch, pixel_channels});
  }

 private:
  using Conv = Value (Ltx2Autoencoder::*)(Value, const std::string&);

  Value encode_chunk(Value x, const std::vector<Ltx2Part>& down) {
    const Dims d = g_.shape(x);
    x = g_.reshape(x, {d[0], d[1], d[2] / patch, patch, d[3] / patch, patch, d[4]});
    x = g_.permute(x, {0, 1, 2, 4, 6, 5, 3});
    x = g_.reshape(x, {d[0], d[1], d[2] / patch, d[3] / patch, d[4] * patch * patch});
    x = look_back(x, encoder_ + "conv_in");
    for (const Ltx2Part& part : down) {
      auto scope = g_.scope(part.name, LH_SCOPE_CHECKPOINT);
      if (part.blocks > 0)
        x = blocks(x, part, &Ltx2Autoencoder::look_back);
      else
        x = this->down(x, part);
    }
    return look_back(activated(x), encoder_ + "conv_out");
  }

  Value down(Value x, const Ltx2Part& part) {
    if (part.time > 1 && chunks_.first()) x = g_.concat({x, x}, 1);
    Value y = to_channels(look_back(x, part.name + ".conv"), part);
    return g_.add(y, channel_means(g_, to_channels(x, part), part.next));
  }

  Value up(Value x, const Ltx2Part& part) {
    Value y = to_places(look_around(x, part.name + ".conv"), part);
    if (!residual_) return y;
    Value places = to_places(x, part);
    return g_.add(y, g_.concat(std::vector<Value>(static_cast<size_t>(part.next / g_.shape(places)[4]), places), -1));
  }

  Value blocks(Value x, const Ltx2Part& part, Conv conv) {
    for (int64_t i = 0; i < part.blocks; ++i) {
      const std::string name = part.name + ".res_blocks." + std::to_string(i);
      Value y = (this->*conv)(activated(x), name + ".conv1");
      x = g_.add(x, (this->*conv)(activated(y), name + ".conv2"));
    }
    return x;
  }

  Value activated(Value x) { return g_.silu(g_.rms_norm(x, 1e-8)); }

  Value look_back(Value x, const std::string& module) {
    if (chunks_.first()) {
      const Value frame = g_.slice(x, 1, 0, 1);
      x = g_.concat({frame, frame, x}, 1);
    }
    return g_.conv3d(chunks_.behind_seen(x, module, 2), module + ".conv", {1, 1, 1}, {0, 0, 1, 1, 1, 1});
  }

  Value look_around(Value x, const std::string& module) {
    x = framed(x, 1, 0);
    if (!reflect_) return g_.conv3d(x, module + ".conv", {1, 1, 1}, {0, 0, 1, 1, 1, 1});
    return g_.conv3d(framed(framed(x, 3, 1), 2, 1), module + ".conv");
  }
  // What stands `inside` of both ends of an axis, once more.
  Value framed(Value x, int64_t axis, int64_t inside) {
    const int64_t last = g_.shape(x)[static_cast<size_t>(axis)] - 1;
    if (last < inside)
      throw Failure(LH_E_SETTING,
                    "LTX-2 decodes latents of at least 2 places in height and width (64 pixels), found 1");
    return g_.concat({g_.slice(x, axis, inside, 1), x, g_.slice(x, axis, last - inside, 1)}, axis);
  }

  // [N, T, H, W, C] -> [N, T/t, H/s, W/s, C t s s], the channel the slowest.
  Value to_channels(Value x, const Ltx2Part& part) {
    const int64_t t = part.time, s = part.side;
    const Dims d = g_.shape(x);
    x = g_.reshape(x, {d[0], d[1] / t, t, d[2] / s, s, d[3] / s, s, d[4]});
    x = g_.permute(x, {0, 1, 3, 5, 7, 2, 4, 6});
    return g_.reshape(x, {d[0], d[1] / t, d[2] / s, d[3] / s, d[4] * t * s * s});
  }
  // The inverse, without what the first latent has for the time before it.
  Value to_places(Value x, const Ltx2Part& part) {
    const int64_t t = part.time, s = part.side;
    const Dims d = g_.shape(x);
    const int64_t channels = d[4] / (t * s * s);
    x = g_.reshape(x, {d[0], d[1], d[2], d[3], channels, t, s, s});
    x = g_.reshape(g_.permute(x, {0, 1, 5, 2, 6, 3, 7, 4}), {d[0], t * d[1], s * d[2], s * d[3], channels});
    return t == 1 ? x : g_.slice(x, 1, t - 1, t * d[1] - t + 1);
  }

  Graph& g_;
  Weights w_;
  std::string encoder_, decoder_;
  VideoChunks chunks_;
  bool residual_ = false, reflect_ = false;
};

// Throws when a tensor that gives the autoencoder its shape is missing or does not fit: `z` latent channels (0:
// whatever the decoder takes).
inline void check_ltx2_autoencoder(const Weights& w, const std::string& prefix, int64_t z) {
  using Network = Ltx2Autoencoder;
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  if (const std::string block = w.first_with_prefix(decoder + "diff_blocks."); !block.empty())
    throw Failure(LH_E_MODEL, block + ": this autoencoder decodes by diffusion, which is not supported: use the one " +
                                  "with a decoder of convolutions (ltx-2.5-video-vae-conv-bf16.safetensors)");
  z = w.require(ltx2_conv(decoder + "conv_in"), {-1, z > 0 ? z : -1, 3, 3, 3})[1];
  constexpr int64_t numbers = Network::pixel_channels * Network::patch * Network::patch;
  for (const bool up : {false, true}) {
    const std::string root = up ? decoder : encoder, side = root + (up ? "up_blocks." : "down_blocks.");
    int64_t channels = w.require(ltx2_conv(root + "conv_in"), {-1, up ? z : numbers, 3, 3, 3})[0], time = 1, places = 1;
    for (const Ltx2Part& part : ltx2_parts(w, side, channels)) {
      time *= part.time;
      places *= part.side;
      if (part.blocks == 0) channels = part.next;
    }
    if (up && !w.first_with_prefix(decoder + "last_time_embedder.").empty())
      throw Failure(LH_E_MODEL, decoder +
                                    "last_time_embedder.*: this decoder is told a timestep, those of LTX-2 and "
                                    "its successors are not");
    if (time != Network::frames_of_latent || places != Network::pixels_of_place / Network::patch)
      throw Failure(LH_E_MODEL, side + "*: expected parts that change time and sides 8-fold, found " +
                                    std::to_string(time) + "-fold and " + std::to_string(places) + "-fold");
    w.require(ltx2_conv(root + "conv_out"), {up ? numbers : z + 1, channels, 3, 3, 3});
  }
  for (const char* name : {"mean-of-means", "std-of-means"}) w.require(prefix + "per_channel_statistics." + name, {z});
}

// A model of videos whose latents are this autoencoder's, (z - mean) / deviation of each channel, which are in its
// file.
class Ltx2LatentModel : public LatentModel {
 protected:
  using LatentModel::LatentModel;

 private:
  // Such models are trained on the means, so there is nothing to draw.
  void build_encode(Graph& g, const Sizes& sizes) const final {
    Value video = g.input("image", {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], 3});
    Value made = Ltx2Autoencoder(g, "vae:").encode(video);
    Dims d = g.shape(made);
    const int64_t z = --d.back();
    Value mean = g.slice(made, -1, 0, z);
    Value moments = g.concat({mean, g.expand(g.slice(made, -1, z, 1), d)}, -1);
    mean = g.div(g.sub(g.cast(mean, LH_F32), statistic(g, "mean-of-means")), statistic(g, "std-of-means"));
    output_posterior(g, moments, {mean, g.affine(mean, 0)});
  }
  void build_decode(Graph& g, const Sizes& sizes) const final {
    const int64_t z = g.weights().extent("vae:per_channel_statistics.mean-of-means", 0);
    Value latents = g.input("latents", {sizes["batch"], sizes["time"], sizes["height"], sizes["width"], z});
    Value x = g.add(g.mul(g.cast(latents, LH_F32), statistic(g, "std-of-means")), statistic(g, "mean-of-means"));
    g.output("image", Ltx2Autoencoder(g, "vae:").decode(g.cast(x, LH_FLOAT)));
  }

  static Value statistic(Graph& g, const std::string& name) {
    return g.cast(g.param("vae:per_channel_statistics." + name), LH_F32);
  }
};

}  // namespace lora_host::nn
