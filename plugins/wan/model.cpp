// Plugin "wan": Wan 2.1 text-to-video, 1.3B and 14B, and each of the two experts of Wan 2.2 A14B, text-to-video and
// image-to-video. A still image is a video of one frame.
//
// The experts have the same tensors, those of text-to-video also those of 2.1's 14B, so which one it is is the user's
// word (model.variant); a diffusers directory of both says it of the one that its folder `transformer` has.
#include <algorithm>
#include <array>
#include <optional>

#include "denoiser.h"
#include "nn/t5.hpp"
#include "nn/wan_video_autoencoder.hpp"
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

struct Variant {
  const char* name;
  bool first_frame;  // image-to-video
  const char* recipe;
};
constexpr std::array<Variant, 5> variants = {{{"wan2.1", false, wan_text::recipe_2_1_yaml},
                                              {"wan2.2-high-noise", false, wan_text::recipe_2_2_high_noise_yaml},
                                              {"wan2.2-low-noise", false, wan_text::recipe_2_2_low_noise_yaml},
                                              {"wan2.2-high-noise", true, wan_text::recipe_2_2_i2v_high_noise_yaml},
                                              {"wan2.2-low-noise", true, wan_text::recipe_2_2_i2v_low_noise_yaml}}};

// Of what the user says, or else of what the weights are. Those of image-to-video's experts do not tell them apart.
const Variant& variant_of(const Weights& weights, bool first_frame) {
  const std::optional<std::string> said = weights.setting("variant");
  const std::string name = said.value_or(has_two_experts(weights) ? "wan2.2-high-noise" : "wan2.1");
  const auto found = std::ranges::find_if(
      variants, [&](const Variant& one) { return one.name == name && one.first_frame == first_frame; });
  if (found == variants.end())
    throw Failure(LH_E_SETTING, std::string("model.variant: ") + (said ? name : "missing") +
                                    ": these are the weights of an expert of Wan 2.2's image-to-video: expected "
                                    "wan2.2-high-noise or wan2.2-low-noise");
  return *found;
}

class Wan : public nn::WanVideoLatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Wan(const Weights& weights) : WanVideoLatentModel(facts) {
    const auto channels = static_cast<int64_t>(nn::wan_latents().mean.size());
    if (!weights.first_with_prefix("patch_embedding.").empty()) {
      dims_ = read_dimensions(weights);
      if (dims_->channels != channels)
        throw Failure(LH_E_MODEL, "patch_embedding.weight: expected " + std::to_string(channels) +
                                      " columns (channels of the latents), found " + std::to_string(dims_->channels));
    }
    variant_ = &variant_of(weights, dims_ && dims_->shown > 0);
    if (!weights.first_with_prefix("vae:").empty()) nn::check_wan_video_autoencoder(weights, "vae:", channels);
    if (!weights.first_with_prefix("umt5:").empty()) {
      const int64_t width = nn::check_t5(weights, "umt5:");
      if (dims_) nn::require_width("text_embedding.0.weight", dims_->text, "umt5 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks = weights.has("blocks.0.self_attn.q.weight") && weights.has("blocks.0.cross_attn.q.weight");
    return blocks && weights.has("head.modulation") && weights.has("text_embedding.0.weight") ? 100 : 0;
  }

  const char* recipe() const override { return variant_->recipe; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { wan::build_denoiser(g, *dims_, sizes); }

  // The last states. Rows of pads are zero; the transformer reads them as well.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("umt5", "umt5_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["umt5.length"];
    Value ids = g.input("umt5.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("umt5.attention_mask", {batch, length}, LH_I32);
    Value hidden = nn::t5(g, ids, "umt5:", g.cast(nn::mask_lengths(g, mask), LH_I32));
    g.output("text", nn::masked_rows(g, hidden, mask));
  }

  std::optional<Dimensions> dims_;
  const Variant* variant_ = nullptr;
};

constexpr lh_model wan_model = lora_host::model<Wan>("wan", wan_text::checkpoint_yaml);

}  // namespace
}  // namespace wan

LORA_HOST_PLUGIN("wan", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &wan::wan_model})
