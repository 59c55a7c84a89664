// Plugin "sd35": Stable Diffusion 3.5 medium, large and large turbo, and SD3 medium.
//
// Medium is told by its second attentions, SD3 medium by its missing norms of q and k. Large and large turbo have the
// same tensors, so turbo is the user's word (model.variant).
#include <algorithm>
#include <array>
#include <optional>

#include "denoiser.h"
#include "nn/clip.hpp"
#include "nn/latent_model.hpp"
#include "nn/t5.hpp"
#include "sd35_text.hpp"

namespace sd35 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"sd35", "transformer", {1.5305, 0.0609}};
constexpr int64_t latent_channels = 16, vae_levels = 4;

struct Variant {
  const char* name;
  const char* recipe;
};
constexpr std::array<Variant, 4> variants = {{{"large", sd35_text::recipe_large_yaml},
                                              {"large-turbo", sd35_text::recipe_large_turbo_yaml},
                                              {"medium", sd35_text::recipe_medium_yaml},
                                              {"sd3-medium", sd35_text::recipe_sd3_medium_yaml}}};

class Sd35 : public nn::LatentModel {
 public:
  // Encoders and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Sd35(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    variant_ = choose_variant(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    check_encoders(weights);
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    bool blocks = weights.has("joint_blocks.0.context_block.attn.qkv.weight");
    return blocks && weights.has("x_embedder.proj.weight") ? 100 : 0;
  }

  const char* recipe() const override { return variant_->recipe; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { sd35::build_denoiser(g, *dims_, sizes); }

  const Variant* choose_variant(const Weights& weights) const {
    std::string seen = "large";  // of the weights
    if (dims_ && !dims_->dual.empty()) seen = "medium";
    if (dims_ && !dims_->qk_norm) seen = "sd3-medium";
    const std::string name = weights.setting("variant").value_or(seen);
    if (dims_ && name != seen && !(name == "large-turbo" && seen == "large"))
      throw Failure(LH_E_MODEL, "variant is " + name + ", but the weights are those of " +
                                    (seen == "large" ? "large or large-turbo" : seen));
    return &*std::ranges::find(variants, name, [](const Variant& variant) { return std::string(variant.name); });
  }

  // Hidden and pooled widths of the encoders that are there, against each other and the denoiser.
  void check_encoders(const Weights& w) {
    int64_t hidden = 0, pooled = 0;
    for (const char* clip : {"clip_l:", "clip_g:"}) {
      if (w.first_with_prefix(clip).empty()) continue;
      int64_t width = nn::check_clip(w, clip);
      hidden += width;
      if (clip == std::string("clip_g:") && !w.has("clip_g:text_projection.weight"))
        throw Failure(LH_E_MODEL, "missing tensor clip_g:text_projection.weight: is model.clip_g_path a CLIP-L file?");
      pooled += clip == std::string("clip_g:") ? w.require("clip_g:text_projection.weight", {-1, width})[0] : width;
    }
    bool both = !w.first_with_prefix("clip_l:").empty() && !w.first_with_prefix("clip_g:").empty();
    if (dims_ && both)
      nn::require_width("y_embedder.mlp.0.weight", dims_->pooled, "clip_l and clip_g together give", pooled);
    if (dims_) text_width_ = dims_->text;
    if (!w.first_with_prefix("t5:").empty()) {
      int64_t width = nn::check_t5(w, "t5:");
      if (dims_) nn::require_width("context_embedder.weight", dims_->text, "t5 gives", width);
      text_width_ = width;
    }
    if (text_width_ > 0 && hidden > text_width_)
      throw Failure(LH_E_MODEL, "clip_l and clip_g together give " + std::to_string(hidden) +
                                    " columns, more than the " + std::to_string(text_width_) +
                                    " of the text: the files do not belong together");
  }

  // text = [ clip_l | clip_g | 0 ; t5 ] (columns; rows), pooled = clip_l's | clip_g's projected. Without T5 its rows
  // are zero, as many as CLIP has.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("clip_l", "clip_path", "conditioner");
    g.weights().require_component("clip_g", "clip_g_path", "conditioner");
    if (text_width_ == 0)
      throw Failure(LH_E_MODEL, "role conditioner needs t5 or the transformer to know how wide the text is");
    int64_t batch = sizes["batch"], length = sizes["clip_l.length"];
    if (int64_t other = sizes["clip_g.length"]; other != length)
      throw Failure(LH_E_INVALID, "clip_l.length is " + std::to_string(length) + ", clip_g.length " +
                                      std::to_string(other) + "; expected the same");
    Value l_ids = g.input("clip_l.input_ids", {batch, length}, LH_I32);
    Value g_ids = g.input("clip_g.input_ids", {batch, length}, LH_I32);
    nn::ClipOutput l = nn::clip(g, l_ids, "clip_l:");
    nn::ClipOutput big = nn::clip(g, g_ids, "clip_g:", {.activation = "erf", .projection = true});
    Value clips = g.concat({l.penultimate, big.penultimate}, -1);  // [B, L, hl + hg]
    int64_t columns = text_width_ - g.shape(clips)[2];
    if (!g.weights().first_with_prefix("t5:").empty()) {
      Value t5_ids = g.input("t5.input_ids", {batch, sizes["t5.length"]}, LH_I32);
      Value hidden = nn::t5(g, t5_ids, "t5:");
      g.output("text", g.concat({g.pad(clips, {0, 0, 0}, {0, 0, columns}), hidden}, 1));
      g.output("t5.hidden", hidden);
    } else {
      g.output("text", g.pad(clips, {0, 0, 0}, {0, length, columns}));
    }
    g.output("pooled", g.concat({l.pooled, big.pooled}, -1));
    g.output("clip_l.penultimate", l.penultimate);
    g.output("clip_l.pooled", l.pooled);
    g.output("clip_g.penultimate", big.penultimate);
    g.output("clip_g.pooled", big.pooled);
  }

  std::optional<Dimensions> dims_;
  const Variant* variant_ = nullptr;
  int64_t text_width_ = 0;  // of the text states; 0 = nothing says
};

constexpr lh_model sd35_model = lora_host::model<Sd35>("sd35", sd35_text::checkpoint_yaml);

}  // namespace
}  // namespace sd35

LORA_HOST_PLUGIN("sd35", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &sd35::sd35_model})
