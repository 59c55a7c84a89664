// The autoencoder: one convolution for each level, which halves the image on the way in and doubles it on the way
// out. Latents have one owner, these two graphs: their mean and scale, one number for each channel, are weights of the
// file, and the host sees latents in model space only, (z - mean) / scale.
#include "tiny_dit.h"

namespace tiny_dit {

using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t groups = 4;
constexpr double eps = 1e-6;

Value conv3(Graph& g, Value x, const std::string& module, int64_t stride = 1) {
  return g.conv2d(x, module, stride, {1, 1, 1, 1});  // pads: top, left, bottom, right
}

Value activated(Graph& g, Value x, const std::string& norm) { return g.silu(g.group_norm(x, norm, groups, eps)); }

// A statistic in float32, where sums are exact enough: [C] broadcasts over [N, h, w, C].
Value statistic(Graph& g, const char* name) { return g.cast(g.param(name), LH_F32); }

}  // namespace

void build_encoder(Graph& g, const Autoencoder& dims, const lora_host::Sizes& sizes) {
  Value x = g.input("image", {sizes["batch"], sizes["height"], sizes["width"], 3});
  x = conv3(g, x, "vae:encoder.in");
  for (int64_t i = 0; i < dims.levels; ++i) {
    std::string level = "vae:encoder.down." + std::to_string(i);
    auto scope = g.scope(level);
    x = conv3(g, activated(g, x, level + ".norm"), level + ".conv", 2);
  }
  Value moments = conv3(g, activated(g, x, "vae:encoder.norm"), "vae:encoder.out");

  // What the host caches and draws latents from: mean and standard deviation, both in model space.
  Value scale = statistic(g, "vae:latent_scale");
  std::vector<Value> parts = g.split(g.cast(moments, LH_F32), -1, {dims.channels, dims.channels});
  Value mean = g.div(g.sub(parts[0], statistic(g, "vae:latent_mean")), scale);
  Value deviation = g.div(g.exp(g.affine(g.clamp(parts[1], -30, 20), 0.5)), scale);
  g.output("posterior", g.concat({mean, deviation}, -1));
  g.output("moments", moments);  // for tests
  g.output("latent_mean", mean);
}

void build_decoder(Graph& g, const Autoencoder& dims, const lora_host::Sizes& sizes) {
  Value latents = g.input("latents", {sizes["batch"], sizes["height"], sizes["width"], dims.channels});
  Value exact = g.mul(g.cast(latents, LH_F32), statistic(g, "vae:latent_scale"));
  Value x = g.cast(g.add(exact, statistic(g, "vae:latent_mean")), LH_FLOAT);
  x = conv3(g, x, "vae:decoder.in");
  for (int64_t i = 0; i < dims.levels; ++i) {
    std::string level = "vae:decoder.up." + std::to_string(i);
    auto scope = g.scope(level);
    x = conv3(g, g.upsample_nearest2x(activated(g, x, level + ".norm")), level + ".conv");
  }
  g.output("image", conv3(g, activated(g, x, "vae:decoder.norm"), "vae:decoder.out"));
}

}  // namespace tiny_dit
