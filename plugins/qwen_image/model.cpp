// Plugin "qwen_image": Qwen-Image and Qwen-Image-2512, which have the same tensors.
#include <optional>

#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"
#include "nn/wan_autoencoder.hpp"
#include "qwen_image_text.hpp"

namespace qwen_image {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "qwen_image", .network = "transformer"};
constexpr nn::LlmFacts qwen2_5_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6};

class QwenImage : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit QwenImage(const Weights& weights) : LatentModel(facts) {
    const auto channels = static_cast<int64_t>(nn::wan_latents().mean.size());
    if (!weights.first_with_prefix("img_in.").empty()) {
      dims_ = read_dimensions(weights);
      if (dims_->channels != channels)
        throw Failure(LH_E_MODEL, "proj_out.weight: expected " + std::to_string(4 * channels) +
                                      " rows (patches of 2x2 of 16 channels), found " +
                                      std::to_string(4 * dims_->channels));
    }
    if (!weights.first_with_prefix("vae:").empty()) nn::check_wan_autoencoder(weights, "vae:", channels);
    if (!weights.first_with_prefix("qwen2_5_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen2_5_vl:", qwen2_5_vl);
      if (dims_) nn::require_width("txt_in.weight", dims_->text, "qwen2_5_vl gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool streams =
        weights.has("transformer_blocks.0.img_mod.1.weight") && weights.has("transformer_blocks.0.txt_mod.1.weight");
    return streams && weights.has("txt_norm.weight") ? 100 : 0;
  }

  const char* recipe() const override { return qwen_image_text::recipe_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { qwen_image::build_denoiser(g, *dims_, sizes); }
  void build_encode(Graph& g, const Sizes& sizes) const override {
    nn::build_wan_encode(g, "vae:", nn::wan_latents(), sizes);
  }
  void build_decode(Graph& g, const Sizes& sizes) const override {
    nn::build_wan_decode(g, "vae:", nn::wan_latents(), sizes);
  }

  // The last states, behind the final norm; the template's front is left out, pads are zero and no part of the text.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen2_5_vl", "qwen2_5_vl_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["qwen2_5_vl.length"], drop = sizes["qwen2_5_vl.drop"];
    if (length <= drop)
      throw Failure(LH_E_SETTING, "model.max_sequence_length: the template's first " + std::to_string(drop) +
                                      " tokens count and are left out, so it must be larger, found " +
                                      std::to_string(length));
    Value ids = g.input("qwen2_5_vl.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("qwen2_5_vl.attention_mask", {batch, length}, LH_I32);
    nn::Llm llm(g, "qwen2_5_vl:", qwen2_5_vl, ids, mask);
    Value hidden = llm.final_norm(llm.states(nn::Llm::layers(g.weights(), "qwen2_5_vl:")).back());
    Value seen = g.slice(mask, 1, drop, length - drop);
    hidden = g.slice(hidden, 1, drop, length - drop);
    g.output("text", g.mul(hidden, g.reshape(g.cast(seen, LH_FLOAT), {batch, length - drop, 1})));
    g.output("text_mask", seen);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model qwen_image_model = lora_host::model<QwenImage>("qwen_image", qwen_image_text::checkpoint_yaml);

}  // namespace
}  // namespace qwen_image

LORA_HOST_PLUGIN("qwen_image", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &qwen_image::qwen_image_model})
