// Plugin "hidream": HiDream-I1, and Dev and Fast, which were distilled from it. All have the same tensors, so that
// these are the user's word (model.variant).
#include <array>
#include <string_view>

#include "denoiser.h"
#include "hidream_text.hpp"
#include "nn/clip.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"
#include "nn/t5.hpp"

namespace hidream {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"hidream", "transformer", {0.3611, 0.1159}};
constexpr int64_t latent_channels = 16, vae_levels = 4, clip_tokens = 128;

// Llama 3.1 8B, whose angles of long waves are those of a context eight times as long.
constexpr nn::LlmFacts llama3 = {
    .head_dim = 128,
    .eps = 1e-5,
    .rope_theta = 5e5,
    .rope_scaling = {.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_length = 8192}};

const char* recipe_of(const std::string& variant) {
  if (variant == "dev") return hidream_text::recipe_dev_yaml;
  return variant == "fast" ? hidream_text::recipe_fast_yaml : hidream_text::recipe_full_yaml;
}

class HiDream : public nn::LatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit HiDream(const Weights& weights)
      : LatentModel(facts), recipe_(recipe_of(weights.setting("variant").value_or("full"))) {
    if (!weights.first_with_prefix("x_embedder.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    check_encoders(weights);
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks = weights.has("double_stream_blocks.0.block.attn1.to_q_t.weight") &&
                        weights.has("single_stream_blocks.0.block.ff_i.gate.weight");
    return blocks && weights.has("caption_projection.0.linear.weight") ? 100 : 0;
  }

  const char* recipe() const override { return recipe_; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hidream::build_denoiser(g, *dims_, sizes); }

  // The width of what a CLIP gives.
  static int64_t check_projected_clip(const Weights& w, const std::string& clip) {
    const int64_t width = nn::check_clip(w, clip);
    const std::string table = clip + "text_model.embeddings.position_embedding.weight",
                      projection = clip + "text_projection.weight";
    if (const int64_t tokens = w.require(table)[0]; tokens < clip_tokens)
      throw Failure(LH_E_MODEL, table + ": expected " + std::to_string(clip_tokens) + " rows or more, found " +
                                    std::to_string(tokens) +
                                    "; give HiDream's own CLIP, such as clip_l_hidream.safetensors (clip_path) and "
                                    "clip_g_hidream.safetensors (clip_g_path)");
    return w.require(projection, {-1, width})[0];
  }

  void check_encoders(const Weights& w) const {
    const auto there = [&](const char* encoder) { return !w.first_with_prefix(encoder).empty(); };
    const int64_t l = there("clip_l:") ? check_projected_clip(w, "clip_l:") : 0,
                  g = there("clip_g:") ? check_projected_clip(w, "clip_g:") : 0;
    if (dims_ && l > 0 && g > 0)
      nn::require_width("p_embedder.pooled_embedder.linear_1.weight", dims_->pooled, "clip_l and clip_g together give",
                        l + g);
    if (there("t5:")) {
      const int64_t width = nn::check_t5(w, "t5:");
      if (dims_)
        nn::require_width("caption_projection." + std::to_string(dims_->blocks()) + ".linear.weight", dims_->t5,
                          "t5 gives", width);
    }
    if (there("llama3:")) {
      const int64_t width = nn::check_llm(w, "llama3:", llama3), layers = nn::Llm::layers(w, "llama3:");
      if (!dims_) return;
      nn::require_width("caption_projection.0.linear.weight", dims_->llama, "llama3 gives", width);
      if (layers < dims_->states())
        throw Failure(LH_E_MODEL, "llama3:model.layers.*: expected " + std::to_string(dims_->states()) +
                                      " layers or more, found " + std::to_string(layers));
    }
  }

  // Pads are seen by the transformer: their rows are what the encoders make of them.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    for (const auto& [encoder, key] : {std::pair{"clip_l", "clip_path"}, std::pair{"clip_g", "clip_g_path"},
                                       std::pair{"t5", "t5_path"}, std::pair{"llama3", "llama3_path"}})
      g.weights().require_component(encoder, key, "conditioner");
    const auto input = [&](const std::string& encoder, const char* what) {
      return g.input(encoder + what, {sizes["batch"], sizes[encoder + ".length"]}, LH_I32);
    };
    Value l = nn::clip(g, input("clip_l", ".input_ids"), "clip_l:", {.projection = true}).pooled;
    Value big = nn::clip(g, input("clip_g", ".input_ids"), "clip_g:", {.activation = "erf", .projection = true}).pooled;
    g.output("pooled", g.concat({l, big}, -1));
    Value t5_lengths = g.cast(nn::mask_lengths(g, input("t5", ".attention_mask")), LH_I32);
    g.output("t5", nn::t5(g, input("t5", ".input_ids"), "t5:", t5_lengths));
    g.output("llama3", llama_states(g, input("llama3", ".input_ids"), input("llama3", ".attention_mask")));
  }

  // Behind each layer that is read, side by side; behind the last one of the model, normed.
  Value llama_states(Graph& g, Value ids, Value mask) const {
    const int64_t layers = nn::Llm::layers(g.weights(), "llama3:"),
                  count = dims_ ? dims_->states() : std::min(layers, Dimensions::llama_layers);
    nn::Llm llm(g, "llama3:", llama3, ids, mask);
    std::vector<Value> states = llm.states(count);
    states.erase(states.begin());  // the embeddings
    if (count == layers) states.back() = llm.final_norm(states.back());
    return g.concat(states, -1);
  }

  const char* recipe_;
  std::optional<Dimensions> dims_;
};

constexpr lh_model hidream_model = lora_host::model<HiDream>("hidream", hidream_text::checkpoint_yaml);

}  // namespace
}  // namespace hidream

LORA_HOST_PLUGIN("hidream", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &hidream::hidream_model})
