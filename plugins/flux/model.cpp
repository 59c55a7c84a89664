// Plugin "flux": Flux.1 dev and schnell, told apart by the guidance embedder, Fill, whose first layer is wider, and
// Kontext, which has the tensors of dev: the user (model.variant) or the index of a diffusers directory says that it is
// one.
#include <optional>

#include "denoiser.h"
#include "flux_text.hpp"
#include "nn/clip.hpp"
#include "nn/latent_model.hpp"
#include "nn/t5.hpp"

namespace flux {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"flux", "transformer", {0.3611, 0.1159}};
constexpr int64_t latent_channels = 16, vae_levels = 4;

class Flux : public nn::LatentModel {
 public:
  // Encoders and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Flux(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights);
    check_variant(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("clip_l:").empty()) {
      int64_t width = nn::check_clip(weights, "clip_l:");
      if (dims_) nn::require_width("vector_in.in_layer.weight", dims_->pooled, "clip_l gives", width);
    }
    if (!weights.first_with_prefix("t5:").empty()) {
      int64_t width = nn::check_t5(weights, "t5:");
      if (dims_) nn::require_width("txt_in.weight", dims_->text, "t5 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    bool blocks = weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight");
    return blocks && weights.has("img_in.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    if (filling()) return guided() ? flux_text::recipe_fill_yaml : flux_text::recipe_fill_unguided_yaml;
    if (kontext_) return guided() ? flux_text::recipe_kontext_yaml : flux_text::recipe_kontext_unguided_yaml;
    return guided() ? flux_text::recipe_dev_yaml : flux_text::recipe_schnell_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { flux::build_denoiser(g, *dims_, sizes, kontext_); }

  bool guided() const { return dims_ && dims_->guidance; }
  bool filling() const { return dims_ && dims_->fill; }

  void check_variant(const Weights& weights) {
    std::optional<std::string> variant = weights.setting("variant");
    const std::string index = weights.document("", "model_index.json").value_or("");
    if (!variant && index.find("\"FluxKontextPipeline\"") != index.npos) variant = "kontext";
    if (!variant) return;
    if (dims_ && filling() != (*variant == "fill"))
      throw Failure(LH_E_MODEL,
                    "variant is " + *variant + ", but img_in.weight has " +
                        std::to_string(weights.require("img_in.weight", {-1, -1})[1]) + " columns: it is " +
                        (filling() ? "a Fill model" : "none of Fill, which is also given an image and a mask"));
    kontext_ = *variant == "kontext";
    if (*variant == "schnell" && guided())
      throw Failure(LH_E_MODEL,
                    "variant is schnell, but the checkpoint has guidance_in.in_layer.weight: it is a dev model");
    if (*variant == "dev" && dims_ && !guided())
      throw Failure(LH_E_MODEL,
                    "variant is dev, but the checkpoint has no guidance_in.in_layer.weight: it is a schnell model");
  }

  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("clip_l", "clip_path", "conditioner");
    g.weights().require_component("t5", "t5_path", "conditioner");
    int64_t batch = sizes["batch"];
    Value clip_ids = g.input("clip_l.input_ids", {batch, sizes["clip_l.length"]}, LH_I32);
    Value t5_ids = g.input("t5.input_ids", {batch, sizes["t5.length"]}, LH_I32);
    Value pooled = nn::clip(g, clip_ids, "clip_l:").pooled;
    Value hidden = nn::t5(g, t5_ids, "t5:");
    g.output("text", hidden);
    g.output("pooled", pooled);
    g.output("t5.hidden", hidden);
    g.output("clip_l.pooled", pooled);
  }

  std::optional<Dimensions> dims_;
  bool kontext_ = false;
};

constexpr lh_model flux_model = lora_host::model<Flux>("flux", flux_text::checkpoint_yaml);

}  // namespace
}  // namespace flux

LORA_HOST_PLUGIN("flux", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &flux::flux_model})
