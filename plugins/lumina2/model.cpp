// Plugin "lumina2": Lumina-Image 2.0 and what was made of it (Neta Lumina, NetaYume Lumina).
#include <cmath>
#include <optional>
#include <string>

#include "denoiser.h"
#include "lumina2_text.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"

namespace lumina2 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"lumina2", "transformer", {0.3611, 0.1159}};
constexpr int64_t latent_channels = 16, vae_levels = 4;

// Gemma 2 2B, which scales scores by query_pre_attn_scalar^-1/2, 256 as its heads are wide.
nn::LlmFacts gemma2(const Weights& weights) {
  const auto embedding = weights.find("gemma2:model.embed_tokens.weight");
  const double width = embedding && embedding->size() == 2 ? static_cast<double>((*embedding)[1]) : 1;
  return {.head_dim = 256,
          .eps = 1e-6,
          .rope_theta = 1e4,
          .activation = "tanh",
          .attention_soft_cap = 50,
          .norm_offset = 1,
          .embedding_scale = std::sqrt(width),
          .window = 4096,
          .full_every = 2};
}

// The recipe with the user's system prompt, as a text in double quotes, in place of the usual one; "none" is none.
std::string recipe_for(const std::optional<std::string>& system) {
  std::string recipe = lumina2_text::recipe_yaml;
  if (!system) return recipe;
  std::string quoted;
  for (const char c : *system)
    if (c == '\n')
      quoted += "\\n";
    else
      (c == '"' || c == '\\' ? quoted += '\\' : quoted) += c;
  const std::string field = "system: \"";
  const size_t first = recipe.find(field) + field.size();
  return recipe.replace(first, recipe.find('"', first) - first, *system == "none" ? "" : quoted + " <Prompt Start> ");
}

class Lumina2 : public nn::LatentModel {
 public:
  // Encoder and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Lumina2(const Weights& weights) : LatentModel(facts), recipe_(recipe_for(weights.setting("system_prompt"))) {
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("gemma2:").empty()) {
      const int64_t width = nn::check_llm(weights, "gemma2:", gemma2(weights));
      if (dims_) nn::require_width("cap_embedder.0.weight", dims_->text, "gemma2 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks =
        weights.has("layers.0.attention.qkv.weight") && weights.has("context_refiner.0.ffn_norm1.weight");
    return blocks && weights.has("noise_refiner.0.adaLN_modulation.1.weight") && weights.has("cap_embedder.0.weight")
               ? 100
               : 0;
  }

  const char* recipe() const override { return recipe_.c_str(); }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { lumina2::build_denoiser(g, *dims_, sizes); }

  // The states before the last layer, without the final norm.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("gemma2", "gemma2_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["gemma2.length"];
    Value ids = g.input("gemma2.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("gemma2.attention_mask", {batch, length}, LH_I32);
    nn::Llm llm(g, "gemma2:", gemma2(g.weights()), ids, mask);
    g.output("text", nn::masked_rows(g, llm.states(nn::Llm::layers(g.weights(), "gemma2:") - 1).back(), mask));
    g.output("text_mask", mask);
  }

  std::string recipe_;
  std::optional<Dimensions> dims_;
};

constexpr lh_model lumina2_model = lora_host::model<Lumina2>("lumina2", lumina2_text::checkpoint_yaml);

}  // namespace
}  // namespace lumina2

LORA_HOST_PLUGIN("lumina2", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &lumina2::lumina2_model})
