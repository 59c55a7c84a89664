// Plugin "flux": Flux.1 dev and schnell, told apart by the guidance embedder.
#include <array>
#include <optional>

#include "denoiser.h"
#include "flux_text.hpp"
#include "nn/autoencoder.hpp"
#include "nn/clip.hpp"
#include "nn/t5.hpp"

namespace flux {
namespace {

using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr std::array<const char*, 4> roles = {"denoiser", "conditioner", "vae.encode", "vae.decode"};
constexpr lora_host::nn::LatentScale latent_scale = {0.3611, 0.1159};
constexpr int64_t latent_channels = 16, vae_levels = 4;

class Flux : public lora_host::Model {
 public:
  // Encoders and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Flux(const Weights& weights) {
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights);
    check_variant(weights);
    if (!weights.first_with_prefix("vae:").empty())
      lora_host::nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("clip_l:").empty()) {
      int64_t width = lora_host::nn::check_clip(weights, "clip_l:");
      if (dims_) require_width("vector_in.in_layer.weight", dims_->pooled, "clip_l", width);
    }
    if (!weights.first_with_prefix("t5:").empty()) {
      int64_t width = lora_host::nn::check_t5(weights, "t5:");
      if (dims_) require_width("txt_in.weight", dims_->text, "t5", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    bool blocks = weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight");
    return blocks && weights.has("img_in.weight") ? 100 : 0;
  }

  const char* recipe() const override { return guided() ? flux_text::recipe_dev_yaml : flux_text::recipe_schnell_yaml; }
  const char* role(uint32_t index) const override { return index < roles.size() ? roles[index] : nullptr; }

  void build(Graph& g, std::string_view role, const Sizes& sizes) const override {
    if (role == "denoiser") {
      if (!dims_) throw Failure(LH_E_MODEL, "role denoiser needs the transformer; give its file as model.name_or_path");
      return build_denoiser(g, *dims_, sizes);
    }
    if (role == "conditioner") return build_conditioner(g, sizes);
    if (role == "vae.encode" || role == "vae.decode") {
      g.weights().require_component("vae", "vae_path", role);
      return role == "vae.encode" ? lora_host::nn::build_vae_encode(g, "vae:", latent_scale, sizes)
                                  : lora_host::nn::build_vae_decode(g, "vae:", latent_scale, sizes);
    }
    throw Failure(LH_E_UNSUPPORTED, "flux has no role '" + std::string(role) + "'");
  }

 private:
  bool guided() const { return dims_ && dims_->guidance; }

  void check_variant(const Weights& weights) const {
    std::optional<std::string> variant = weights.setting("variant");
    if (!variant) return;
    if (*variant == "schnell" && guided())
      throw Failure(LH_E_MODEL,
                    "variant is schnell, but the checkpoint has guidance_in.in_layer.weight: it is a dev model");
    if (*variant == "dev" && dims_ && !guided())
      throw Failure(LH_E_MODEL,
                    "variant is dev, but the checkpoint has no guidance_in.in_layer.weight: it is a schnell model");
    if (*variant != "dev" && *variant != "schnell")
      throw Failure(LH_E_INVALID, "variant '" + *variant + "' is unknown; expected dev or schnell");
  }

  static void require_width(const char* tensor, int64_t expected, const char* encoder, int64_t found) {
    if (expected != found)
      throw Failure(LH_E_MODEL, std::string(tensor) + " takes " + std::to_string(expected) + " columns, but " +
                                    encoder + " gives " + std::to_string(found) + ": the files do not belong together");
  }

  static void build_conditioner(Graph& g, const Sizes& sizes) {
    g.weights().require_component("clip_l", "clip_path", "conditioner");
    g.weights().require_component("t5", "t5_path", "conditioner");
    int64_t batch = sizes["batch"];
    Value clip_ids = g.input("clip_l.input_ids", {batch, sizes["clip_l.length"]}, LH_I32);
    Value t5_ids = g.input("t5.input_ids", {batch, sizes["t5.length"]}, LH_I32);
    Value pooled = lora_host::nn::clip(g, clip_ids, "clip_l:").pooled;
    Value hidden = lora_host::nn::t5(g, t5_ids, "t5:");
    g.output("text", hidden);
    g.output("pooled", pooled);
    g.output("t5.hidden", hidden);
    g.output("clip_l.pooled", pooled);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model flux_model = lora_host::model<Flux>("flux", flux_text::checkpoint_yaml);

}  // namespace
}  // namespace flux

LORA_HOST_PLUGIN("flux", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &flux::flux_model})
