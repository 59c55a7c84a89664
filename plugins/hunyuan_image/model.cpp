// Plugin "hunyuan_image": HunyuanImage 2.1, and the model that was distilled from it to eight steps, told by its
// embedders of guidance and of the end of a step.
#include "denoiser.h"
#include "hunyuan_image_text.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"
#include "nn/shuffle_autoencoder.hpp"
#include "nn/t5.hpp"

namespace hunyuan_image {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {"hunyuan_image", "transformer", {0.75289, 0}};
constexpr int64_t vae_levels = 6, glyph_width = 1472;
// Of Qwen2.5-VL the language model alone: positions of a text without images are plain ones.
constexpr nn::LlmFacts qwen2_5_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6};
constexpr int64_t layers_left_out = 2;  // the last ones

class HunyuanImage : public nn::ShuffleLatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit HunyuanImage(const Weights& weights) : ShuffleLatentModel(facts) {
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_shuffle_autoencoder(weights, "vae:", dims_ ? dims_->channels : 0, vae_levels);
    if (!weights.first_with_prefix("qwen2_5_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen2_5_vl:", qwen2_5_vl, false);
      if (dims_) nn::require_width("txt_in.input_embedder.weight", dims_->text, "qwen2_5_vl gives", width);
    }
    if (!weights.first_with_prefix("byt5:").empty()) {
      const int64_t width = nn::check_t5(weights, "byt5:");
      if (dims_) nn::require_width("byt5_in.fc1.weight", dims_->glyphs, "byt5 gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool blocks =
        weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight");
    return blocks && weights.has("byt5_in.fc1.weight") && weights.has("txt_in.input_embedder.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    return dims_ && dims_->distilled() ? hunyuan_image_text::recipe_distilled_yaml
                                       : hunyuan_image_text::recipe_base_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hunyuan_image::build_denoiser(g, *dims_, sizes); }

  // text: the states before the last two layers, without the final norm; the template's front is left out, pads are
  // zero and no part of it. glyphs: of a prompt without quotes the end token's row alone.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen2_5_vl", "qwen2_5_vl_path", "conditioner");
    const nn::TemplatedPrompt prompt = nn::templated_prompt(g, sizes, "qwen2_5_vl");
    nn::Llm llm(g, "qwen2_5_vl:", qwen2_5_vl, prompt.ids, prompt.mask);
    prompt.output(g, llm.states(nn::Llm::layers(g.weights(), "qwen2_5_vl:") - layers_left_out).back());
    build_glyphs(g, sizes, sizes["batch"]);
  }

  void build_glyphs(Graph& g, const Sizes& sizes, int64_t batch) const {
    if (!sizes.has("byt5.length")) {  // without its file no prompt has any
      const int64_t width = dims_ ? dims_->glyphs : glyph_width;
      const std::vector<float> none(static_cast<size_t>(batch * width));
      g.output("glyphs", g.cast(g.constant({batch, 1, width}, none), LH_FLOAT));
      g.output("glyphs_mask", g.constant({batch, 1}, std::vector<int32_t>(static_cast<size_t>(batch), 1)));
      return;
    }
    const int64_t length = sizes["byt5.length"];
    Value ids = g.input("byt5.input_ids", {batch, length}, LH_I32);
    Value mask = g.input("byt5.attention_mask", {batch, length}, LH_I32);
    Value states = nn::t5(g, ids, "byt5:", g.cast(nn::mask_lengths(g, mask), LH_I32));
    g.output("glyphs", nn::masked_rows(g, states, mask));
    g.output("glyphs_mask", mask);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model hunyuan_image_model =
    lora_host::model<HunyuanImage>("hunyuan_image", hunyuan_image_text::checkpoint_yaml);

}  // namespace
}  // namespace hunyuan_image

LORA_HOST_PLUGIN("hunyuan_image", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &hunyuan_image::hunyuan_image_model})
