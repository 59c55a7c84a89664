// Plugin "flux2": Flux.2 dev, klein 4B and 9B, and the bases that these were distilled from.
//
// Dev has a guidance embedder and reads with Mistral, the others have none and read with Qwen3. A klein and its base
// have the same tensors: what is_distilled in a diffusers folder or the user (model.variant) does not say is a base,
// which is the one to train on.
#include <optional>

#include "flux2.h"
#include "flux2_text.hpp"
#include "nn/flux2_autoencoder.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"

namespace flux2 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"flux2", "transformer"};
constexpr int64_t latent_channels = 128, hidden_of_9b = 4096;

struct Encoder {
  const char *name, *prefix, *setting;
  bool head_norms;  // of q and k
  nn::LlmFacts facts;

  // Both stand in the same folder of a diffusers directory: only Qwen3 has norms of q and k.
  bool is_there(const Weights& w) const {
    const std::string first = prefix + std::string("model.layers.0.self_attn.");
    return w.has(first + "q_proj.weight") && w.has(first + "q_norm.weight") == head_norms;
  }
  // The states a quarter, half and three quarters of the way; files of Mistral may end there, with layer 30 of 40.
  std::vector<int64_t> depths(const Weights& w) const {
    int64_t layers = nn::Llm::layers(w, prefix);
    if (!head_norms && layers == 30) layers = 40;
    return {layers / 4, 2 * layers / 4, 3 * layers / 4};
  }
};
constexpr Encoder qwen3 = {"qwen3", "qwen3:", "qwen3_path", true, {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6}};
constexpr Encoder mistral = {"mistral",
                             "mistral:",
                             "mistral_path",
                             false,
                             {.head_dim = 128, .eps = 1e-5, .rope_theta = 1e9, .pads_first = true}};

class Flux2 : public nn::LatentModel {
 public:
  // Encoders and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Flux2(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("double_blocks.").empty()) dims_ = read_dimensions(weights);
    choose_recipe(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_flux2_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels);
    for (const Encoder* encoder : {&qwen3, &mistral})
      if (encoder->is_there(weights) && (!dims_ || encoder == &this->encoder(weights))) {
        const int64_t width = 3 * nn::check_llm(weights, encoder->prefix, encoder->facts, false);
        if (dims_)
          nn::require_width("txt_in.weight", dims_->text, "three states of " + std::string(encoder->name) + " give",
                            width);
      }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    bool blocks = weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight");
    return blocks && weights.has("double_stream_modulation_img.lin.weight") ? 100 : 0;
  }

  const char* recipe() const override { return recipe_; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { flux2::build_denoiser(g, *dims_, sizes); }
  void build_encode(Graph& g, const Sizes& sizes) const override { nn::build_flux2_encode(g, "vae:", sizes); }
  void build_decode(Graph& g, const Sizes& sizes) const override { nn::build_flux2_decode(g, "vae:", sizes); }

  const Encoder& encoder(const Weights& weights) const {
    const bool guided = dims_ ? dims_->guidance : !qwen3.is_there(weights) && mistral.is_there(weights);
    return guided ? mistral : qwen3;
  }

  void choose_recipe(const Weights& weights) {
    const std::string variant = weights.setting("variant").value_or("");
    const bool dev = dims_ ? dims_->guidance : &encoder(weights) == &mistral;
    if (dims_ && !variant.empty() && dev != (variant == "dev"))
      throw Failure(LH_E_MODEL, "variant is " + variant + ", but the checkpoint has " + (dev ? "a" : "no") +
                                    " guidance_in.in_layer.weight: it is a " + (dev ? "dev" : "klein") + " model");
    const bool large = dims_ && dims_->hidden >= hidden_of_9b;
    const std::string index = weights.document("", "model_index.json").value_or("");
    const bool distilled =
        variant == "klein" || (variant.empty() && index.find("\"is_distilled\": true") != index.npos);
    if (dev)
      recipe_ = flux2_text::recipe_dev_yaml;
    else if (distilled)
      recipe_ = large ? flux2_text::recipe_klein_9b_yaml : flux2_text::recipe_klein_4b_yaml;
    else
      recipe_ = large ? flux2_text::recipe_klein_base_9b_yaml : flux2_text::recipe_klein_base_4b_yaml;
  }

  // Three states of the encoder side by side. Every row goes to the transformer, those of pads among them.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    const Encoder& encoder = this->encoder(g.weights());
    const std::string name = encoder.name;
    g.weights().require_component(name, encoder.setting, "conditioner");
    if (!encoder.is_there(g.weights()))
      throw Failure(LH_E_MODEL, "model." + std::string(encoder.setting) + " is not " + name +
                                    ": of Qwen3, which klein reads with, and Mistral, which dev reads with, only the "
                                    "first has norms of q and k");
    const int64_t batch = sizes["batch"], length = sizes[name + ".length"];
    Value ids = g.input(name + ".input_ids", {batch, length}, LH_I32);
    Value mask = g.input(name + ".attention_mask", {batch, length}, LH_I32);
    const std::vector<int64_t> depths = encoder.depths(g.weights());
    const std::vector<Value> states = nn::Llm(g, encoder.prefix, encoder.facts, ids, mask).states(depths.back());
    std::vector<Value> chosen;
    for (int64_t depth : depths) chosen.push_back(states[static_cast<size_t>(depth)]);
    g.output("text", g.concat(chosen, -1));
  }

  std::optional<Dimensions> dims_;
  const char* recipe_ = nullptr;
};

constexpr lh_model flux2_model = lora_host::model<Flux2>("flux2", flux2_text::checkpoint_yaml);

}  // namespace
}  // namespace flux2

LORA_HOST_PLUGIN("flux2", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &flux2::flux2_model})
