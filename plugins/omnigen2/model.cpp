// Plugin "omnigen2": OmniGen2, which makes pictures and, shown others, edits them or takes something from them. The
// same weights do both.
#include <optional>
#include <string>

#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"
#include "omnigen2_text.hpp"

namespace omnigen2 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"omnigen2", "transformer", {0.3611, 0.1159}};
constexpr int64_t latent_channels = 16, vae_levels = 4;
// A text without pictures: its three axes count alike.
constexpr nn::LlmFacts qwen2_5_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6};

class OmniGen2 : public nn::LatentModel {
 public:
  // Encoder and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit OmniGen2(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("qwen2_5_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen2_5_vl:", qwen2_5_vl);
      if (dims_)
        nn::require_width("time_caption_embed.caption_embedder.0.weight", dims_->text, "qwen2_5_vl gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks = weights.has("layers.0.attn.to_q.weight") && weights.has("context_refiner.0.norm1.weight");
    return blocks && weights.has("ref_image_patch_embedder.weight") && weights.has("image_index_embedding") ? 100 : 0;
  }

  const char* recipe() const override { return omnigen2_text::recipe_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { omnigen2::build_denoiser(g, *dims_, sizes); }

  // The last states, behind the final norm, of the template's tokens and the prompt's.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen2_5_vl", "qwen2_5_vl_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["qwen2_5_vl.length"];
    Value ids = g.input("qwen2_5_vl.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("qwen2_5_vl.attention_mask", {batch, length}, LH_I32);
    nn::Llm llm(g, "qwen2_5_vl:", qwen2_5_vl, ids, mask);
    Value states = llm.final_norm(llm.states(nn::Llm::layers(g.weights(), "qwen2_5_vl:")).back());
    g.output("text", nn::masked_rows(g, states, mask));
    g.output("text_mask", mask);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model omnigen2_model = lora_host::model<OmniGen2>("omnigen2", omnigen2_text::checkpoint_yaml);

}  // namespace
}  // namespace omnigen2

LORA_HOST_PLUGIN("omnigen2", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &omnigen2::omnigen2_model})
