// Plugin "ernie_image": ERNIE-Image and the model that was distilled from it (Turbo).
//
// Both have the same tensors, so turbo is the user's word (model.variant). Without it a file is taken as the base,
// which is the one to train on.
#include <optional>

#include "denoiser.h"
#include "ernie_image_text.hpp"
#include "nn/flux2_autoencoder.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"

namespace ernie_image {
namespace {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "ernie_image", .network = "transformer"};
// Ministral 3 also multiplies queries by a factor of their position, which is 1 up to position 16384.
constexpr nn::LlmFacts ministral3 = {
    .head_dim = 128,
    .eps = 1e-5,
    .rope_theta = 1e6,
    .rope_scaling = {
        .factor = 16, .low_frequency = 1, .high_frequency = 32, .original_length = 16384, .by_place = true}};
// Flux.2's autoencoder; the files that come with this model say 1e-4 for its statistics, and its programs take this.
constexpr nn::Flux2Latents latents = {.eps = 1e-5, .drawn = true};
constexpr int64_t latent_channels = 128;

class ErnieImage : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit ErnieImage(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    turbo_ = weights.setting("variant") == "turbo";
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_flux2_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels);
    if (!weights.first_with_prefix("ministral3:").empty()) {
      const int64_t width = nn::check_llm(weights, "ministral3:", ministral3, false);
      if (dims_) nn::require_width("text_proj.weight", dims_->text, "ministral3 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    const bool layers = weights.has("layers.0.mlp.linear_fc2.weight") && weights.has("layers.0.adaLN_sa_ln.weight");
    return layers && weights.has("adaLN_modulation.1.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    return turbo_ ? ernie_image_text::recipe_turbo_yaml : ernie_image_text::recipe_base_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { ernie_image::build_denoiser(g, *dims_, sizes); }
  void build_encode(Graph& g, const Sizes& sizes) const override { nn::build_flux2_encode(g, "vae:", sizes, latents); }
  void build_decode(Graph& g, const Sizes& sizes) const override { nn::build_flux2_decode(g, "vae:", sizes, latents); }

  // The states before the last layer, without the final norm; pads are zero and no part of the prompt.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("ministral3", "ministral3_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["ministral3.length"];
    Value ids = g.input("ministral3.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("ministral3.attention_mask", {batch, length}, LH_I32);
    const int64_t depth = nn::Llm::layers(g.weights(), "ministral3:") - 1;
    Value hidden = nn::Llm(g, "ministral3:", ministral3, ids, mask).states(depth).back();
    g.output("text", nn::masked_rows(g, hidden, mask));
    g.output("text_mask", mask);
  }

  std::optional<Dimensions> dims_;
  bool turbo_ = false;
};

constexpr lh_model ernie_image_model = lora_host::model<ErnieImage>("ernie_image", ernie_image_text::checkpoint_yaml);

}  // namespace
}  // namespace ernie_image

LORA_HOST_PLUGIN("ernie_image", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &ernie_image::ernie_image_model})
