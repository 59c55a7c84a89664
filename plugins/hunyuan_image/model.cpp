// Plugin "hunyuan_image": HunyuanImage 2.1, and the model that was distilled from it to eight steps, told by its
// embedders of guidance and of the end of a step.
#include "denoiser.h"
#include "hunyuan_image_text.hpp"
#include "nn/hunyuan_prompt.hpp"
#include "nn/latent_model.hpp"
#include "nn/shuffle_autoencoder.hpp"

namespace hunyuan_image {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"hunyuan_image", "transformer", {0.75289, 0}};
constexpr int64_t vae_levels = 6;

class HunyuanImage : public nn::ShuffleLatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit HunyuanImage(const Weights& weights) : ShuffleLatentModel(facts) {
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_shuffle_autoencoder(weights, "vae:", dims_ ? dims_->channels : 0, vae_levels);
    nn::check_hunyuan_encoders(weights, dims_ ? &dims_->prompt : nullptr);
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks =
        weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight");
    return blocks && weights.has("byt5_in.fc1.weight") && weights.has("txt_in.input_embedder.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    return dims_ && dims_->distilled() ? hunyuan_image_text::recipe_distilled_yaml
                                       : hunyuan_image_text::recipe_base_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hunyuan_image::build_denoiser(g, *dims_, sizes); }

  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    nn::build_hunyuan_conditioner(g, sizes, dims_ ? dims_->prompt.glyphs : nn::hunyuan_glyph_width);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model hunyuan_image_model =
    lora_host::model<HunyuanImage>("hunyuan_image", hunyuan_image_text::checkpoint_yaml);

}  // namespace
}  // namespace hunyuan_image

LORA_HOST_PLUGIN("hunyuan_image", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &hunyuan_image::hunyuan_image_model})
