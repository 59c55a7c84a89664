// Plugin "flux3": FLUX.3 image klein base, which makes an image of a text, or of a text and a reference picture. The
// weights are the same: the user (model.variant) says which.
#include <optional>

#include "denoiser.h"
#include "flux3_text.hpp"
#include "nn/flux2_autoencoder.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"

namespace flux3 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"flux3", "transformer"};
constexpr int64_t latent_channels = 128, text_states = 8, window = 80;  // rows of a prompt: a multiple of so many

// Its language model, given text alone. The transformer reads pads, too, and was trained with all of them at
// position 1.
constexpr nn::LlmFacts qwen3_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 5e6, .pad_position = 1};
constexpr const char* prefix = "qwen3_vl:";

// Every fourth of the 36 layers, the last one left out; files may end with layer 32.
int64_t layers_apart(const Weights& weights) {
  const int64_t layers = nn::Llm::layers(weights, prefix);
  return layers == 32 ? 4 : layers / (text_states + 1);
}

// i32 [B, L]: 1 for the rows of a prompt, which are its tokens and the pads up to the end of the last window.
Value rows_of(Graph& g, Value mask) {
  const lora_host::Dims d = g.shape(mask);
  const int64_t windows = (d[1] + window - 1) / window, length = windows * window;
  Value there = g.pad(g.cast(mask, LH_F32), {0, 0}, {0, length - d[1]});
  Value begun = g.slice(g.reshape(there, {d[0], windows, window}), 2, 0, 1);  // has a window's first token
  Value rows = g.reshape(g.expand(begun, {d[0], windows, window}), {d[0], length});
  return g.cast(g.slice(rows, 1, 0, d[1]), LH_I32);
}

class Flux3 : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Flux3(const Weights& weights) : LatentModel(facts), edits_(weights.setting("variant") == "edit") {
    if (!weights.first_with_prefix("txt_in.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_flux2_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels);
    if (!weights.first_with_prefix(prefix).empty()) {
      const int64_t width = text_states * nn::check_llm(weights, prefix, qwen3_vl, false);
      if (layers_apart(weights) == 0)
        throw Failure(LH_E_MODEL, "qwen3_vl: expected 36 layers, of which eight states are read, found " +
                                      std::to_string(nn::Llm::layers(weights, prefix)));
      if (dims_) nn::require_width("txt_in.weight", dims_->text, "eight states of qwen3_vl give", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool modes = weights.has("early_stream_modulations.image.lin.weight") && weights.has("emb_in.image.weight");
    return modes && weights.has("single_blocks.0.q_proj.weight") ? 100 : 0;
  }

  const char* recipe() const override { return edits_ ? flux3_text::recipe_edit_yaml : flux3_text::recipe_base_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { flux3::build_denoiser(g, *dims_, sizes, edits_); }
  void build_encode(Graph& g, const Sizes& sizes) const override { nn::build_flux2_encode(g, "vae:", sizes); }
  void build_decode(Graph& g, const Sizes& sizes) const override { nn::build_flux2_decode(g, "vae:", sizes); }

  // Eight states side by side, without the final norm.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen3_vl", "qwen3_vl_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["qwen3_vl.length"], apart = layers_apart(g.weights());
    Value ids = g.input("qwen3_vl.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("qwen3_vl.attention_mask", {batch, length}, LH_I32);
    const std::vector<Value> states = nn::Llm(g, prefix, qwen3_vl, ids, mask).states(text_states * apart);
    std::vector<Value> chosen;
    for (int64_t i = 1; i <= text_states; ++i) chosen.push_back(states[static_cast<size_t>(i * apart)]);
    g.output("text", g.concat(chosen, -1));
    g.output("text_mask", rows_of(g, mask));
  }

  std::optional<Dimensions> dims_;
  bool edits_;
};

constexpr lh_model flux3_model = lora_host::model<Flux3>("flux3", flux3_text::checkpoint_yaml);

}  // namespace
}  // namespace flux3

LORA_HOST_PLUGIN("flux3", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &flux3::flux3_model})
