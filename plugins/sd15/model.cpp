// Plugin "sd15": Stable Diffusion 1 and 2, also for inpainting, with noise or velocity as the prediction.
#include <optional>

#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/unet_kin.hpp"
#include "nn/unet_recipe.hpp"
#include "sd15_text.hpp"
#include "text.h"

namespace sd15 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"sd15", "UNet", {0.18215, 0.0}};
constexpr int64_t latent_channels = 4, vae_levels = 4;

constexpr nn::UNetRecipeParts recipe_parts = {
    {sd15_text::epsilon_yaml, sd15_text::v_pred_yaml, sd15_text::v_pred_ztsnr_yaml},
    sd15_text::inputs_yaml,
    sd15_text::recipe_yaml};

class Sd15 : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Sd15(const Weights& weights) : LatentModel(facts) {
    if (weights.has("input_blocks.0.0.weight")) unet_ = read_unet(weights);
    if (!weights.first_with_prefix("vae:").empty()) nn::check_autoencoder(weights, "vae:", latent_channels, vae_levels);
    if (!weights.first_with_prefix(TextEncoder::prefix).empty()) text_ = read_text_encoder(weights);
    if (unet_ && text_) nn::require_width("the UNet's attn2.to_k", unet_->context, "clip gives", text_->width);
    recipe_ = recipe_text(weights);
  }

  static int32_t probe(const Weights& weights) {
    if (!weights.has("time_embed.0.weight") || !weights.has("input_blocks.0.0.weight")) return 0;
    const nn::UNetKin kin = nn::kin_of_unet(weights);
    if (kin.kind == nn::UNetKind::sd1 || kin.kind == nn::UNetKind::sd2) return 100;
    throw Failure(LH_E_MODEL, kin.what + (kin.kind == nn::UNetKind::sdxl ? ", which plugin sdxl trains" : ""));
  }

  const char* recipe() const override { return recipe_.c_str(); }

 private:
  bool has_denoiser() const override { return unet_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { sd15::build_denoiser(g, *unet_, sizes); }
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("clip", "clip_path", "conditioner");
    sd15::build_conditioner(g, *text_, sizes);
  }

  std::string recipe_text(const Weights& weights) const {
    const bool second = (unet_ ? unet_->context : text_ ? text_->width : 0) == sd2_text_width;
    const bool inpaints = unet_ && unet_->inpaints();
    const std::optional<nn::Prediction> told = nn::told_prediction(weights);
    // Models of 512 pixels give the noise, those of 768 the velocity; all of 1, and those for inpainting, the noise.
    if (!told && unet_ && second && !inpaints)
      throw Failure(LH_E_MODEL,
                    "a Stable Diffusion 2 model gives the noise (2-base, 2-1-base) or the velocity (2, 2-1), and this "
                    "file does not say which: set model.variant to epsilon or to v_pred");
    const nn::Prediction prediction = told.value_or(nn::Prediction::epsilon);
    const bool velocity = prediction != nn::Prediction::epsilon;
    std::string architecture = second ? "stable-diffusion-v2" : "stable-diffusion-v1";
    if (inpaints)
      architecture += "-inpainting";
    else if (second)
      architecture += velocity ? "-768-v" : "-512";
    return (second ? sd15_text::sd2_yaml : sd15_text::sd1_yaml) +
           nn::unet_recipe(recipe_parts, prediction, inpaints, architecture) + "  ss_v2: \"" +
           (second ? "True" : "False") + "\"\n  ss_base_model_version: " + (second ? "sd_v2" : "sd_v1") +
           (velocity ? "_v\n" : "\n");
  }

  std::optional<nn::UNetLayout> unet_;
  std::optional<TextEncoder> text_;
  std::string recipe_;
};

constexpr lh_model sd15_model = lora_host::model<Sd15>("sd15", sd15_text::checkpoint_yaml);

}  // namespace
}  // namespace sd15

LORA_HOST_PLUGIN("sd15", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &sd15::sd15_model})
