// Plugin "hidream_o1": HiDream-O1-Image and Dev, which was distilled from it. Both have the same tensors, so that Dev
// is the user's word (model.variant). It works on pixels, and reads the prompt itself: what there is to prepare of it
// are its tokens' embeddings.
#include <optional>

#include "denoiser.h"
#include "hidream_o1_text.hpp"
#include "nn/latent_model.hpp"
#include "nn/layers.hpp"

namespace hidream_o1 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr int64_t boi_token = 151669;
constexpr nn::LatentModelFacts facts = {.id = "hidream_o1", .network = "transformer"};

class HiDreamO1 : public nn::LatentModel {
 public:
  explicit HiDreamO1(const Weights& weights)
      : LatentModel(facts), dev_(weights.setting("variant").value_or("full") == "dev") {
    if (!weights.first_with_prefix("final_layer2.").empty()) dims_ = read_dimensions(weights);
  }

  static int32_t probe(const Weights& weights) {
    const bool decoder = weights.has("language_model.layers.0.self_attn.q_norm.weight");
    return decoder && weights.has("x_embedder.proj1.weight") && weights.has("t_embedder1.mlp.0.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    return dev_ ? hidream_o1_text::recipe_dev_yaml : hidream_o1_text::recipe_full_yaml;
  }

 private:
  // ids whose last token that is there is the one that begins an image.
  static Value begun(Graph& g, Value ids, Value mask) {
    const int64_t length = g.shape(ids)[1];
    Value there = nn::mask_lengths(g, mask);
    Value last = g.sub(nn::length_mask(g, there, length), nn::length_mask(g, g.affine(there, 1, -1), length));
    Value others = g.mul(g.cast(ids, LH_F32), g.affine(last, -1, 1));  // ids are whole numbers of f32, too
    return g.cast(g.add(others, g.affine(last, boi_token)), LH_I32);
  }

  bool has_denoiser() const override { return dims_.has_value(); }
  bool has_autoencoder() const override { return false; }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hidream_o1::build_denoiser(g, *dims_, sizes); }

  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    if (!dims_) throw Failure(LH_E_MODEL, "the prompt is read by the transformer; give its file as model.name_or_path");
    const int64_t batch = sizes["batch"], length = sizes["denoiser.length"];
    Value ids = g.input("denoiser.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("denoiser.attention_mask", {batch, length}, LH_I32);
    g.output("text", nn::masked_rows(g, g.embedding(begun(g, ids, mask), "language_model.embed_tokens"), mask));
    g.output("text_mask", mask);
  }

  std::optional<Dimensions> dims_;
  bool dev_;
};

constexpr lh_model hidream_o1_model = lora_host::model<HiDreamO1>("hidream_o1", hidream_o1_text::checkpoint_yaml);

}  // namespace
}  // namespace hidream_o1

LORA_HOST_PLUGIN("hidream_o1", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &hidream_o1::hidream_o1_model})
