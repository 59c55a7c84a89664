// Plugin "auraflow": AuraFlow 0.1, 0.2 and 0.3 and what was made of it, as Pony V7. They differ in the grid of
// positions that they have.
#include "auraflow_text.hpp"
#include "denoiser.h"
#include "nn/latent_model.hpp"
#include "nn/t5.hpp"

namespace auraflow {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"auraflow", "transformer", {0.13025, 0}};
constexpr int64_t latent_channels = 4, vae_levels = 4;

class AuraFlow : public nn::LatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit AuraFlow(const Weights& weights) : LatentModel(facts) {
    if (!weights.first_with_prefix("init_x_linear.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_autoencoder(weights, "vae:", dims_ ? dims_->channels : latent_channels, vae_levels);
    if (!weights.first_with_prefix("pile_t5:").empty()) {
      const int64_t width = nn::check_t5(weights, "pile_t5:");
      if (dims_) nn::require_width("cond_seq_linear.weight", dims_->text, "pile_t5 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks =
        weights.has("double_layers.0.attn.w2q.weight") && weights.has("single_layers.0.attn.w1q.weight");
    return blocks && weights.has("cond_seq_linear.weight") ? 100 : 0;
  }

  const char* recipe() const override { return auraflow_text::recipe_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { auraflow::build_denoiser(g, *dims_, sizes); }

  // The last states. Rows of pads are zero; the transformer reads them as well.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("pile_t5", "pile_t5_path", "conditioner");
    const int64_t batch = sizes["batch"], length = sizes["pile_t5.length"];
    Value ids = g.input("pile_t5.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("pile_t5.attention_mask", {batch, length}, LH_I32);
    Value hidden = nn::t5(g, ids, "pile_t5:", g.cast(nn::mask_lengths(g, mask), LH_I32));
    g.output("text", nn::masked_rows(g, hidden, mask));
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model auraflow_model = lora_host::model<AuraFlow>("auraflow", auraflow_text::checkpoint_yaml);

}  // namespace
}  // namespace auraflow

LORA_HOST_PLUGIN("auraflow", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &auraflow::auraflow_model})
