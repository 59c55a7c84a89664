// Plugin "hunyuan_video": HunyuanVideo 1.5, text-to-video. A still image is a video of one frame.
#include "denoiser.h"
#include "hunyuan_video_text.hpp"
#include "nn/hunyuan_prompt.hpp"
#include "nn/hunyuan_video_autoencoder.hpp"

namespace hunyuan_video {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "hunyuan_video", .network = "transformer"};

class HunyuanVideo : public nn::HunyuanVideoLatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit HunyuanVideo(const Weights& weights)
      : HunyuanVideoLatentModel(facts), large_(weights.setting("variant").value_or("480p") == "720p") {
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_hunyuan_video_autoencoder(weights, "vae:", dims_ ? dims_->channels : 0);
    nn::check_hunyuan_encoders(weights, dims_ ? &dims_->prompt : nullptr);
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    return weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("cond_type_embedding.weight") &&
                   weights.has("byt5_in.fc1.weight") && weights.has("txt_in.input_embedder.weight")
               ? 100
               : 0;
  }

  const char* recipe() const override {
    return large_ ? hunyuan_video_text::recipe_720p_yaml : hunyuan_video_text::recipe_480p_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hunyuan_video::build_denoiser(g, *dims_, sizes); }

  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    nn::build_hunyuan_conditioner(g, sizes, dims_ ? dims_->prompt.glyphs : nn::hunyuan_glyph_width);
  }

  std::optional<Dimensions> dims_;
  bool large_;  // 720p
};

constexpr lh_model hunyuan_video_model =
    lora_host::model<HunyuanVideo>("hunyuan_video", hunyuan_video_text::checkpoint_yaml);

}  // namespace
}  // namespace hunyuan_video

LORA_HOST_PLUGIN("hunyuan_video", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &hunyuan_video::hunyuan_video_model})
