// Plugin "z_image": Z-Image and Z-Image-Turbo.
//
// Both have the same tensors, so turbo is the user's word (model.variant). Without it a file is taken as the base: that
// is the model to train on, and the defaults of the base draw an image with either, those of turbo do not.
#include <optional>

#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"
#include "z_image_text.hpp"

namespace z_image {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"z_image", "transformer", {0.3611, 0.1159}};
constexpr nn::LlmFacts qwen3 = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6};
constexpr int64_t latent_channels = 16, vae_levels = 4;

class ZImage : public nn::LatentModel {
 public:
  // Encoders and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit ZImage(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    turbo_ = weights.setting("variant") == "turbo";
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("qwen3:").empty()) {
      int64_t width = nn::check_llm(weights, "qwen3:", qwen3);
      if (dims_) nn::require_width("cap_embedder.0.weight", dims_->text, "qwen3 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    bool blocks = weights.has("layers.0.attention.qkv.weight") && weights.has("context_refiner.0.attention.qkv.weight");
    return blocks && weights.has("cap_pad_token") ? 100 : 0;
  }

  const char* recipe() const override {
    return turbo_ ? z_image_text::recipe_turbo_yaml : z_image_text::recipe_base_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { z_image::build_denoiser(g, *dims_, sizes); }

  // The states before the last layer, without the final norm; pads are zero and no part of the caption.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen3", "qwen3_path", "conditioner");
    int64_t batch = sizes["batch"], length = sizes["qwen3.length"];
    Value ids = g.input("qwen3.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("qwen3.attention_mask", {batch, length}, LH_I32);
    Value hidden = nn::Llm(g, "qwen3:", qwen3, ids, mask).states(nn::Llm::layers(g.weights(), "qwen3:") - 1).back();
    g.output("text", nn::masked_rows(g, hidden, mask));
    g.output("text_mask", mask);
  }

  std::optional<Dimensions> dims_;
  bool turbo_ = false;
};

constexpr lh_model z_image_model = lora_host::model<ZImage>("z_image", z_image_text::checkpoint_yaml);

}  // namespace
}  // namespace z_image

LORA_HOST_PLUGIN("z_image", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &z_image::z_image_model})
