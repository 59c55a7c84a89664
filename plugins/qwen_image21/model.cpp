// Plugin "qwen_image21": Qwen-Image 2.1, and the model that was distilled from it to eight steps (Turbo), as they make
// an image from a prompt.
//
// Both have the same tensors: what the index of a diffusers directory (sample_sigmas) or the user (model.variant) does
// not say is the base, which is the one to train on.
#include <optional>

#include "denoiser.h"
#include "latents.h"
#include "nn/llm.hpp"
#include "nn/wan_residual_autoencoder.hpp"
#include "qwen_image21_text.hpp"

namespace qwen_image21 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "qwen_image21", .network = "transformer"};
// Of Qwen3-VL the language model alone. Its positions have three axes, which are equal in a text without images: plain
// rotary positions.
constexpr nn::LlmFacts qwen3_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 5e6};

class QwenImage21 : public nn::WanResidualLatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit QwenImage21(const Weights& weights) : WanResidualLatentModel(facts, latents()) {
    const auto channels = static_cast<int64_t>(latents().mean.size());
    if (!weights.first_with_prefix("img_in.").empty()) {
      dims_ = read_dimensions(weights);
      if (dims_->channels != channels)
        throw Failure(LH_E_MODEL, "proj_out.weight: expected " + std::to_string(channels) +
                                      " rows, the channels of the latents, found " + std::to_string(dims_->channels));
    }
    const std::string index = weights.document("", "model_index.json").value_or("");
    const bool distilled = index.find("\"sample_sigmas\": [") != index.npos;
    turbo_ = weights.setting("variant").value_or(distilled ? "turbo" : "base") == "turbo";
    if (!weights.first_with_prefix("vae:").empty()) nn::check_wan_residual_autoencoder(weights, "vae:", channels);
    if (!weights.first_with_prefix("qwen3_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen3_vl:", qwen3_vl, false);
      if (dims_) nn::require_width("txt_in.in_layer.weight", dims_->text, "qwen3_vl gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks =
        weights.has("transformer_blocks.0.img_mlp.gate_up.weight") && weights.has("modulation.1.weight");
    return blocks && weights.has("txt_in.text_norm.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    return turbo_ ? qwen_image21_text::recipe_turbo_yaml : qwen_image21_text::recipe_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { qwen_image21::build_denoiser(g, *dims_, sizes); }

  // The last states as they are before the final norm; the system's turn is left out, pads are zero and no part of the
  // text.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen3_vl", "qwen3_vl_path", "conditioner");
    const nn::TemplatedPrompt prompt = nn::templated_prompt(g, sizes, "qwen3_vl");
    const int64_t layers = nn::Llm::layers(g.weights(), "qwen3_vl:");
    prompt.output(g, nn::Llm(g, "qwen3_vl:", qwen3_vl, prompt.ids, prompt.mask).states(layers).back());
  }

  std::optional<Dimensions> dims_;
  bool turbo_ = false;
};

constexpr lh_model qwen_image21_model =
    lora_host::model<QwenImage21>("qwen_image21", qwen_image21_text::checkpoint_yaml);

}  // namespace
}  // namespace qwen_image21

LORA_HOST_PLUGIN("qwen_image21", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &qwen_image21::qwen_image21_model})
