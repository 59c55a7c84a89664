// Plugin "sdxl": Stable Diffusion XL, also for inpainting, and its distilled relatives, with noise or velocity as the
// prediction.
#include <optional>

#include "denoiser.h"
#include "nn/clip.hpp"
#include "nn/latent_model.hpp"
#include "nn/unet_kin.hpp"
#include "nn/unet_recipe.hpp"
#include "sdxl_text.hpp"

namespace sdxl {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"sdxl", "UNet", {0.13025, 0.0}};
constexpr int64_t latent_channels = 4, vae_levels = 4;
constexpr nn::ClipOptions clip_g_options = {.activation = "erf", .projection = true};

constexpr nn::UNetRecipeParts recipe_parts = {
    {sdxl_text::epsilon_yaml, sdxl_text::v_pred_yaml, sdxl_text::v_pred_ztsnr_yaml},
    sdxl_text::inputs_yaml,
    sdxl_text::recipe_yaml};

class Sdxl : public nn::LatentModel {
 public:
  // Encoders and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Sdxl(const Weights& weights) : LatentModel(facts) {
    if (weights.has("input_blocks.0.0.weight")) dims_ = read_dimensions(weights);
    const bool inpaints = dims_ && dims_->unet.inpaints();
    recipe_ = nn::unet_recipe(recipe_parts, nn::told_prediction(weights).value_or(nn::Prediction::epsilon), inpaints,
                              inpaints ? "stable-diffusion-xl-v1-inpainting" : "stable-diffusion-xl-v1-base");
    if (!weights.first_with_prefix("vae:").empty()) nn::check_autoencoder(weights, "vae:", latent_channels, vae_levels);
    std::optional<int64_t> clip_l, clip_g;
    if (!weights.first_with_prefix("clip_l:").empty()) clip_l = nn::check_clip(weights, "clip_l:");
    if (!weights.first_with_prefix("clip_g:").empty()) {
      clip_g = nn::check_clip(weights, "clip_g:");
      weights.require("clip_g:text_projection.weight", {dims_ ? dims_->pooled : -1, *clip_g});
    }
    if (dims_ && clip_l && clip_g && *clip_l + *clip_g != dims_->unet.context)
      throw Failure(LH_E_MODEL, "the UNet takes text of width " + std::to_string(dims_->unet.context) +
                                    ", but clip_l and clip_g give " + std::to_string(*clip_l) + " + " +
                                    std::to_string(*clip_g) + ": the files do not belong together");
  }

  static int32_t probe(const Weights& weights) {
    if (!weights.has("time_embed.0.weight") || !weights.has("input_blocks.0.0.weight")) return 0;
    const nn::UNetKin kin = nn::kin_of_unet(weights);
    if (kin.kind == nn::UNetKind::sdxl) return 100;
    const bool sd = kin.kind == nn::UNetKind::sd1 || kin.kind == nn::UNetKind::sd2;
    throw Failure(LH_E_MODEL, kin.what + (sd ? ", which plugin sd15 trains" : ""));
  }

  const char* recipe() const override { return recipe_.c_str(); }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { sdxl::build_denoiser(g, *dims_, sizes); }

  // text: the states before the last layer, of both encoders side by side; pooled: of the larger one, projected. Of
  // long text the rows' states are joined, and pooled is that of the first row.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("clip_l", "clip_path", "conditioner");
    g.weights().require_component("clip_g", "clip_g_path", "conditioner");
    int64_t batch = sizes["batch"], rows = sizes.has("clip_l.rows") ? sizes["clip_l.rows"] : 1;
    Value l_ids = g.input("clip_l.input_ids", {batch * rows, sizes["clip_l.length"]}, LH_I32);
    Value g_ids = g.input("clip_g.input_ids", {batch * rows, sizes["clip_g.length"]}, LH_I32);
    Value l = nn::join_rows(g, nn::clip(g, l_ids, "clip_l:").penultimate, rows);
    nn::ClipOutput big = nn::clip(g, g_ids, "clip_g:", clip_g_options);
    Value large = nn::join_rows(g, big.penultimate, rows);
    Value pooled = nn::first_row(g, big.pooled, rows);
    g.output("text", g.concat({l, large}, -1));
    g.output("pooled", pooled);
    g.output("clip_l.penultimate", l);
    g.output("clip_g.penultimate", large);
    g.output("clip_g.pooled", pooled);
  }

  std::optional<Dimensions> dims_;
  std::string recipe_;
};

constexpr lh_model sdxl_model = lora_host::model<Sdxl>("sdxl", sdxl_text::checkpoint_yaml);

}  // namespace
}  // namespace sdxl

LORA_HOST_PLUGIN("sdxl", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &sdxl::sdxl_model})
