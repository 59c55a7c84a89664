// Plugin "hunyuan_video": HunyuanVideo 1.5, text-to-video and image-to-video. A still image is a video of one frame.
//
// All have the same tensors: the user (model.variant) or the index of a diffusers directory says which one it is.
#include <algorithm>
#include <array>

#include "denoiser.h"
#include "hunyuan_video_text.hpp"
#include "nn/hunyuan_prompt.hpp"
#include "nn/hunyuan_video_autoencoder.hpp"
#include "nn/siglip_vision.hpp"

namespace hunyuan_video {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "hunyuan_video", .network = "transformer"};

struct Variant {
  const char* name;
  const char* recipe;
  bool image_to_video = false;
};
constexpr std::array<Variant, 4> variants = {{{"480p", hunyuan_video_text::recipe_480p_yaml},
                                              {"720p", hunyuan_video_text::recipe_720p_yaml},
                                              {"480p-i2v", hunyuan_video_text::recipe_480p_i2v_yaml, true},
                                              {"720p-i2v", hunyuan_video_text::recipe_720p_i2v_yaml, true}}};

class HunyuanVideo : public nn::HunyuanVideoLatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit HunyuanVideo(const Weights& weights) : HunyuanVideoLatentModel(facts) {
    const bool shown = is_image_to_video(weights);
    const std::string name = weights.setting("variant").value_or(shown ? "480p-i2v" : "480p");
    variant_ = &*std::ranges::find(variants, name, [](const Variant& variant) { return std::string(variant.name); });
    if (shown && !variant_->image_to_video)
      throw Failure(LH_E_SETTING, "model.variant: " + name + ": this is image-to-video (model_index.json): expected " +
                                      name + "-i2v");
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights, variant_->image_to_video);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_hunyuan_video_autoencoder(weights, "vae:", dims_ ? dims_->channels : 0);
    nn::check_hunyuan_encoders(weights, dims_ ? &dims_->prompt : nullptr);
    if (variant_->image_to_video && !weights.first_with_prefix("siglip:").empty()) {
      const int64_t width = nn::check_siglip_vision(weights, "siglip:");
      if (dims_) nn::require_width("vision_in.proj.1.weight", dims_->image, "siglip gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    return weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("cond_type_embedding.weight") &&
                   weights.has("byt5_in.fc1.weight") && weights.has("txt_in.input_embedder.weight")
               ? 100
               : 0;
  }

  const char* recipe() const override { return variant_->recipe; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hunyuan_video::build_denoiser(g, *dims_, sizes); }

  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    nn::build_hunyuan_conditioner(g, sizes, dims_ ? dims_->prompt.glyphs : nn::hunyuan_glyph_width);
    if (!variant_->image_to_video) return;
    g.weights().require_component("siglip", "siglip_path", "conditioner");
    Value picture = g.input("picture", {1, sizes["picture_height"], sizes["picture_width"], 3});
    Value seen = nn::siglip_vision(g, picture, "siglip:");
    const lora_host::Dims d = g.shape(seen);
    g.output("image", g.expand(seen, {sizes["batch"], d[1], d[2]}));
  }

  std::optional<Dimensions> dims_;
  const Variant* variant_ = nullptr;
};

constexpr lh_model hunyuan_video_model =
    lora_host::model<HunyuanVideo>("hunyuan_video", hunyuan_video_text::checkpoint_yaml);

}  // namespace
}  // namespace hunyuan_video

LORA_HOST_PLUGIN("hunyuan_video", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &hunyuan_video::hunyuan_video_model})
