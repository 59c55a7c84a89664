// Plugin "anima": Anima, an illustration model with the transformer of Cosmos-Predict2 and an adapter that reads Qwen3.
#include <optional>

#include "adapter.h"
#include "anima_text.hpp"
#include "denoiser.h"
#include "nn/llm.hpp"
#include "nn/wan_autoencoder.hpp"

namespace anima {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "anima", .network = "transformer"};
constexpr nn::LlmFacts qwen3 = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6};

class Anima : public nn::WanLatentModel {
 public:
  // Text side and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Anima(const Weights& weights) : WanLatentModel(facts) {
    const auto channels = static_cast<int64_t>(nn::wan_latents().mean.size());
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    if (dims_ && dims_->channels != channels)
      throw Failure(LH_E_MODEL, "final_layer.linear.weight: expected " + std::to_string(channels) +
                                    " channels of latents, found " + std::to_string(dims_->channels));
    if (!weights.first_with_prefix("vae:").empty()) nn::check_wan_autoencoder(weights, "vae:", channels);
    const bool adapter = !weights.first_with_prefix("llm_adapter:").empty();
    if (adapter) {
      const int64_t width = check_adapter(weights);
      if (dims_) nn::require_width("blocks.0.cross_attn.k_proj.weight", dims_->text, "llm_adapter gives", width);
    }
    if (!weights.first_with_prefix("qwen3:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen3:", qwen3);
      if (adapter)
        nn::require_width("llm_adapter:blocks.0.cross_attn.k_proj.weight", adapter_source(weights), "qwen3 gives",
                          width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks = weights.has("blocks.0.self_attn.q_proj.weight") && weights.has("blocks.0.mlp.layer1.weight");
    return blocks && weights.has("x_embedder.proj.1.weight") && weights.has("t_embedding_norm.weight") ? 100 : 0;
  }

  const char* recipe() const override { return anima_text::recipe_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { anima::build_denoiser(g, *dims_, sizes); }

  // The same prompt twice: Qwen3's last states, behind its final norm, and tokens of T5, which ask them. Rows beyond
  // those tokens are zero. An empty prompt has no token of Qwen3 and the end alone of T5.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen3", "qwen3_path", "conditioner");
    g.weights().require_component("llm_adapter", "llm_adapter_path", "conditioner");
    const Tokens read = tokens(g, "qwen3", sizes), asked = tokens(g, "llm_adapter", sizes);
    nn::Llm llm(g, "qwen3:", qwen3, read.ids, read.mask);
    Value states = llm.final_norm(llm.states(nn::Llm::layers(g.weights(), "qwen3:")).back());
    Value text = adapter(g, asked.ids, asked.lengths, states, read.lengths);
    g.output("text", nn::masked_rows(g, text, asked.mask));
    g.output("text_mask", asked.mask);
  }

  struct Tokens {
    Value ids, mask, lengths;  // i32 [B, L], [B, L], [B]
  };
  static Tokens tokens(Graph& g, const std::string& encoder, const Sizes& sizes) {
    const int64_t batch = sizes["batch"], length = sizes[encoder + ".length"];
    Value ids = g.input(encoder + ".input_ids", {batch, length}, LH_I32);
    Value mask = g.input(encoder + ".attention_mask", {batch, length}, LH_I32);
    return {ids, mask, g.cast(nn::mask_lengths(g, mask), LH_I32)};
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model anima_model = lora_host::model<Anima>("anima", anima_text::checkpoint_yaml);

}  // namespace
}  // namespace anima

LORA_HOST_PLUGIN("anima", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &anima::anima_model})
