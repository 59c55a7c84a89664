// Plugin "ideogram4": Ideogram 4, the transformer that reads a prompt.
//
// The model is published with a second transformer of the same tensors, which sees no text: its vendor's guidance is a
// difference of the two. Only the first is trained, and guidance here is a difference of its own two answers.
#include <optional>

#include "autoencoder.h"
#include "denoiser.h"
#include "ideogram4_text.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"

namespace ideogram4 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "ideogram4", .network = "transformer"};
// Of Qwen3-VL the language model alone. Its positions have three axes, which are equal in a text without images: plain
// rotary positions.
constexpr nn::LlmFacts qwen3_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 5e6};

// The states that are read: behind layers 1, 4, 7, ..., 34 and the last, 36.
std::vector<int64_t> depths(const Weights& weights) {
  const int64_t layers = nn::Llm::layers(weights, "qwen3_vl:");
  std::vector<int64_t> all;
  for (int64_t depth = 1; depth < layers; depth += 3) all.push_back(depth);
  all.push_back(layers);
  return all;
}

class Ideogram4 : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Ideogram4(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("layers.").empty()) {
      dims_ = read_dimensions(weights);
      if (dims_->channels != latent_channels)
        throw Failure(LH_E_MODEL, "input_proj.weight: expected " + std::to_string(latent_channels) +
                                      " columns (patches of 2x2 of 32 channels), found " +
                                      std::to_string(dims_->channels));
    }
    if (!weights.first_with_prefix("vae:").empty()) check_autoencoder(weights);
    if (!weights.first_with_prefix("qwen3_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen3_vl:", qwen3_vl, false);
      const auto states = static_cast<int64_t>(depths(weights).size());
      if (dims_)
        nn::require_width("llm_cond_proj.weight", dims_->text, std::to_string(states) + " states of qwen3_vl give",
                          states * width);
    }
  }

  static int32_t probe(const Weights& weights) {
    const bool blocks = weights.has("layers.0.attention.qkv.weight") && weights.has("llm_cond_proj.weight");
    if (!blocks || !weights.has("embed_image_indicator.weight")) return 0;
    if (weights.metadata("denoiser", "model_type") == "ideogram4_uncond")
      throw Failure(LH_E_MODEL,
                    "this is the transformer of Ideogram 4 that sees no text, for the guidance of its vendor's "
                    "programs: train on the other one, such as ideogram4_fp8_scaled.safetensors");
    return 100;
  }

  const char* recipe() const override { return ideogram4_text::recipe_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { ideogram4::build_denoiser(g, *dims_, sizes); }
  void build_encode(Graph& g, const Sizes& sizes) const override { ideogram4::build_encode(g, sizes); }
  void build_decode(Graph& g, const Sizes& sizes) const override { ideogram4::build_decode(g, sizes); }

  // States of several depths as they are, those of one number side by side: number i of state s is at i n + s, of n
  // states. The whole template is read; pads are zero and no part of the text.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen3_vl", "qwen3_vl_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["qwen3_vl.length"];
    Value ids = g.input("qwen3_vl.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("qwen3_vl.attention_mask", {batch, length}, LH_I32);
    const std::vector<int64_t> read = depths(g.weights());
    const std::vector<Value> states = nn::Llm(g, "qwen3_vl:", qwen3_vl, ids, mask).states(read.back());
    const int64_t width = g.shape(states[0])[2];
    std::vector<Value> chosen;
    for (int64_t depth : read)
      chosen.push_back(g.reshape(states[static_cast<size_t>(depth)], {batch, length, width, 1}));
    Value text = g.reshape(g.concat(chosen, -1), {batch, length, width * static_cast<int64_t>(read.size())});
    g.output("text", nn::masked_rows(g, text, mask));
    g.output("text_mask", mask);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model ideogram4_model = lora_host::model<Ideogram4>("ideogram4", ideogram4_text::checkpoint_yaml);

}  // namespace
}  // namespace ideogram4

LORA_HOST_PLUGIN("ideogram4", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &ideogram4::ideogram4_model})
