// Plugin "wan": Wan 2.1, text-to-video of 1.3B and 14B and image-to-video, each of the two experts of Wan 2.2 A14B,
// text-to-video and image-to-video, and Wan 2.2 TI2V 5B as either. A still image is a video of one frame.
//
// The experts have the same tensors, those of text-to-video also those of 2.1's 14B, so which one it is is the user's
// word (model.variant); a diffusers directory of both says it of the one that its folder `transformer` has. 2.1's
// image-to-video sees its picture by CLIP, too, and has layers for that. TI2V 5B has latents of its own autoencoder,
// whose channels tell it; whether it is given first frames is the user's word again.
#include <algorithm>
#include <array>
#include <optional>

#include "denoiser.h"
#include "latents.h"
#include "nn/clip_vision.hpp"
#include "nn/t5.hpp"
#include "nn/wan_residual_video_autoencoder.hpp"
#include "wan_text.hpp"

namespace wan {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "wan", .network = "transformer"};
constexpr int64_t clip_head_dim = 80;  // of ViT-H

struct Variant {
  const char* name;
  const char* recipe;
  bool first_frame = false;  // image-to-video
  bool picture = false;      // which also sees it by CLIP
  bool residual = false;     // its autoencoder is that of Wan 2.2, whose levels have a way around them

  int64_t channels() const { return static_cast<int64_t>((residual ? latents_2_2() : nn::wan_latents()).mean.size()); }
};
constexpr std::array<Variant, 7> variants = {
    {{"wan2.1", wan_text::recipe_2_1_yaml},
     {.name = "wan2.1", .recipe = wan_text::recipe_2_1_i2v_yaml, .first_frame = true, .picture = true},
     {"wan2.2-high-noise", wan_text::recipe_2_2_high_noise_yaml},
     {"wan2.2-low-noise", wan_text::recipe_2_2_low_noise_yaml},
     {.name = "wan2.2-high-noise", .recipe = wan_text::recipe_2_2_i2v_high_noise_yaml, .first_frame = true},
     {.name = "wan2.2-low-noise", .recipe = wan_text::recipe_2_2_i2v_low_noise_yaml, .first_frame = true},
     {.name = "wan2.2-ti2v-5b", .recipe = wan_text::recipe_2_2_ti2v_5b_yaml, .residual = true}}};
constexpr const Variant& ti2v_5b = variants.back();

class Wan : public nn::WanVideoLatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Wan(const Weights& weights) : WanVideoLatentModel(facts) {
    if (!weights.first_with_prefix("patch_embedding.").empty()) dims_ = read_dimensions(weights);
    const bool vae = !weights.first_with_prefix("vae:").empty();
    const bool residual_vae = vae && !nn::WanLevel::all(weights, "vae:decoder.upsamples.").empty();
    variant_ = &variant_of(weights, residual_vae);
    if (dims_ && dims_->channels != variant_->channels())
      throw Failure(LH_E_MODEL, "patch_embedding.weight: expected " + std::to_string(variant_->channels()) +
                                    " columns (channels of the latents of " + variant_->name + "), found " +
                                    std::to_string(dims_->channels));
    if (vae && residual_vae != variant_->residual)
      throw Failure(LH_E_MODEL, std::string("vae:decoder.upsamples.*: this is the autoencoder of Wan ") +
                                    (residual_vae ? "2.2 TI2V 5B, " : "2.1, ") + variant_->name + " has another one");
    const auto check = residual_vae ? nn::check_wan_residual_video_autoencoder : nn::check_wan_video_autoencoder;
    if (vae) check(weights, "vae:", variant_->channels());
    if (!weights.first_with_prefix("umt5:").empty()) {
      const int64_t width = nn::check_t5(weights, "umt5:");
      if (dims_) nn::require_width("text_embedding.0.weight", dims_->text, "umt5 gives", width);
    }
    if (variant_->picture && !weights.first_with_prefix("clip_vision:").empty()) {
      const int64_t width = nn::check_clip_vision(weights, "clip_vision:", clip_head_dim);
      if (dims_) nn::require_width("img_emb.proj.1.weight", dims_->image, "clip_vision gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks = weights.has("blocks.0.self_attn.q.weight") && weights.has("blocks.0.cross_attn.q.weight");
    return blocks && weights.has("head.modulation") && weights.has("text_embedding.0.weight") ? 100 : 0;
  }

  const char* recipe() const override { return variant_->recipe; }

 private:
  // Of what the user says, or else of what the weights are: without the transformer, of what autoencoder and encoders
  // are.
  const Variant& variant_of(const Weights& weights, bool residual_vae) const {
    const bool large = dims_ ? dims_->channels == ti2v_5b.channels() : residual_vae;
    const std::optional<std::string> said = weights.setting("variant");
    const std::string name = said.value_or(large                      ? ti2v_5b.name
                                           : has_two_experts(weights) ? "wan2.2-high-noise"
                                                                      : "wan2.1");
    const bool clip = name == "wan2.1" && !weights.first_with_prefix("clip_vision:").empty();
    const bool picture = dims_ ? dims_->image > 0 : clip, first_frame = dims_ ? dims_->shown > 0 : clip;
    const auto found = std::ranges::find_if(variants, [&](const Variant& one) {
      return one.name == name && one.first_frame == first_frame && one.picture == picture;
    });
    if (found == variants.end())
      throw Failure(LH_E_SETTING, std::string("model.variant: ") + (said ? name : "missing") +
                                      ": these are the weights of " +
                                      (picture ? "Wan 2.1's image-to-video: expected wan2.1"
                                               : "an expert of Wan 2.2's image-to-video: expected wan2.2-high-noise or "
                                                 "wan2.2-low-noise"));
    return *found;
  }

  void build_encode(Graph& g, const Sizes& sizes) const override {
    if (!variant_->residual) return WanVideoLatentModel::build_encode(g, sizes);
    nn::encode_video_with<nn::WanResidualVideoAutoencoder>(g, "vae:", latents_2_2(), sizes);
  }
  void build_decode(Graph& g, const Sizes& sizes) const override {
    if (!variant_->residual) return WanVideoLatentModel::build_decode(g, sizes);
    nn::decode_video_with<nn::WanResidualVideoAutoencoder>(g, "vae:", latents_2_2(), sizes);
  }

  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { wan::build_denoiser(g, *dims_, sizes); }

  // The last states. Rows of pads are zero; the transformer reads them as well. And what CLIP sees.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("umt5", "umt5_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["umt5.length"];
    Value ids = g.input("umt5.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("umt5.attention_mask", {batch, length}, LH_I32);
    Value hidden = nn::t5(g, ids, "umt5:", g.cast(nn::mask_lengths(g, mask), LH_I32));
    g.output("text", nn::masked_rows(g, hidden, mask));
    if (!variant_->picture) return;
    g.weights().require_component("clip_vision", "clip_vision_path", "conditioner");
    Value picture = g.input("picture", {1, sizes["picture_height"], sizes["picture_width"], 3});
    Value seen = nn::clip_vision(g, picture, "clip_vision:", clip_head_dim);
    const lora_host::Dims d = g.shape(seen);
    g.output("image", g.expand(seen, {batch, d[1], d[2]}));
  }

  std::optional<Dimensions> dims_;
  const Variant* variant_ = nullptr;
};

constexpr lh_model wan_model = lora_host::model<Wan>("wan", wan_text::checkpoint_yaml);

}  // namespace
}  // namespace wan

LORA_HOST_PLUGIN("wan", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &wan::wan_model})
