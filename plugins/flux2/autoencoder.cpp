// The roles of the autoencoder (flux2.h).
#include "nn/autoencoder.hpp"

#include "flux2.h"
#include "nn/mmdit.hpp"

namespace flux2 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t patch = 2, levels = 4;
constexpr double eps = 1e-4;  // of the batch norm
const char *const mean_key = "vae:bn.running_mean", *const variance_key = "vae:bn.running_var";

struct Statistics {
  Value mean, deviation;  // f32 [C], which broadcast over [N, h, w, C]
};

Statistics statistics(Graph& g) {
  return {g.cast(g.param(mean_key), LH_F32), g.sqrt(g.affine(g.cast(g.param(variance_key), LH_F32), 1, eps))};
}

}  // namespace

void check_autoencoder(const lora_host::Weights& weights, int64_t channels) {
  nn::check_autoencoder(weights, "vae:", channels / (patch * patch), levels);
  for (const char* key : {mean_key, variance_key}) weights.require(key, {channels});
}

// The model was trained on the mean of what the encoder says, so there is nothing to draw.
void build_encode(Graph& g, const lora_host::Sizes& sizes) {
  Value image = g.input("image", {sizes["batch"], sizes["height"], sizes["width"], 3});
  Value moments = nn::Autoencoder(g, "vae:").encode(image);
  Value mean = nn::posterior_of(g, moments).mean;  // [N, 2h, 2w, 32]
  const Dims d = g.shape(mean);
  mean = nn::patchify_channel_first(g, mean, patch);  // [N, h w, 128]
  mean = g.reshape(mean, {d[0], d[1] / patch, d[2] / patch, d[3] * patch * patch});
  const Statistics known = statistics(g);
  mean = g.div(g.sub(mean, known.mean), known.deviation);
  nn::output_posterior(g, moments, {mean, g.affine(mean, 0)});
}

void build_decode(Graph& g, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
  const int64_t channels = g.weights().require(mean_key)[0];
  Value latents = g.input("latents", {batch, height, width, channels});
  const Statistics known = statistics(g);
  Value x = g.add(g.mul(g.cast(latents, LH_F32), known.deviation), known.mean);
  x = g.reshape(g.cast(x, LH_FLOAT), {batch, height * width, channels});
  x = nn::unpatchify_channel_first(g, x, patch * height, patch * width, patch);  // [N, 2h, 2w, 32]
  g.output("image", nn::Autoencoder(g, "vae:").decode(x));
}

}  // namespace flux2
