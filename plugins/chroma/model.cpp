// Plugin "chroma": Chroma1-HD, Base and Flash, which have the same tensors, and Chroma1-Radiance, which works on
// pixels.
#include <optional>

#include "chroma_text.hpp"
#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/t5.hpp"

namespace chroma {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"chroma", "transformer", {0.3611, 0.1159}};
constexpr int64_t latent_channels = 16, vae_levels = 4;

std::string recipe_of(const std::optional<Dimensions>& dims) {
  if (!dims || !dims->pixels) return chroma_text::recipe_yaml;
  std::string recipe = chroma_text::recipe_radiance_yaml;
  const auto fill = [&](const std::string& hole, const std::string& by) {
    recipe.replace(recipe.find(hole), hole.size(), by);
  };
  fill("{variant}", dims->pixels->gives_picture ? "radiance-x0" : "radiance");
  fill("{patch}", std::to_string(dims->pixels->patch));
  return recipe;
}

class Chroma : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Chroma(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("double_blocks.").empty()) dims_ = read_dimensions(weights);
    recipe_ = recipe_of(dims_);
    if (has_autoencoder() && !weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("t5:").empty()) {
      int64_t width = nn::check_t5(weights, "t5:");
      if (dims_) nn::require_width("txt_in.weight", dims_->text, "t5 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    bool blocks = weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight");
    return blocks && weights.has("distilled_guidance_layer.in_proj.weight") ? 100 : 0;
  }

  const char* recipe() const override { return recipe_.c_str(); }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  bool has_autoencoder() const override { return !dims_ || !dims_->pixels; }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { chroma::build_denoiser(g, *dims_, sizes); }

  // T5 sees the tokens of the prompt; the transformer sees these and one pad after them, as it was trained.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("t5", "t5_path", "conditioner");
    int64_t batch = sizes["batch"], length = sizes["t5.length"];
    Value ids = g.input("t5.input_ids", {batch, length}, LH_I32);
    Value lengths = nn::mask_lengths(g, g.input("t5.attention_mask", {batch, length}, LH_I32));
    Value hidden = nn::t5(g, ids, "t5:", g.cast(lengths, LH_I32));
    Value seen = nn::length_mask(g, g.affine(lengths, 1.0, 1.0), length);
    g.output("text", g.mul(hidden, g.reshape(seen, {batch, length, 1})));
    g.output("text_mask", g.cast(seen, LH_I32));
  }

  std::optional<Dimensions> dims_;
  std::string recipe_;
};

constexpr lh_model chroma_model = lora_host::model<Chroma>("chroma", chroma_text::checkpoint_yaml);

}  // namespace
}  // namespace chroma

LORA_HOST_PLUGIN("chroma", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &chroma::chroma_model})
