// Plugin "hunyuan_video1": the first HunyuanVideo, text-to-video. A still image is a video of one frame.
#include "denoiser.h"
#include "hunyuan_video1_text.hpp"
#include "nn/clip.hpp"
#include "nn/hunyuan_video1_autoencoder.hpp"
#include "nn/llm.hpp"

namespace hunyuan_video1 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "hunyuan_video1", .network = "transformer"};

// Llama 3 8B. The states before its last two layers are the text.
constexpr nn::LlmFacts llama3 = {.head_dim = 128, .eps = 1e-5, .rope_theta = 5e5};
constexpr int64_t layers_left_out = 2;

class HunyuanVideo1 : public nn::HunyuanVideo1LatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit HunyuanVideo1(const Weights& weights) : HunyuanVideo1LatentModel(facts) {
    if (!weights.first_with_prefix("img_in.").empty()) dims_ = read_dimensions(weights);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_hunyuan_video1_autoencoder(weights, "vae:", dims_ ? dims_->channels : 0);
    if (!weights.first_with_prefix("llama3:").empty()) {
      const int64_t width = nn::check_llm(weights, "llama3:", llama3, false);
      if (dims_) nn::require_width("txt_in.input_embedder.weight", dims_->prompt.text, "llama3 gives", width);
    }
    if (!weights.first_with_prefix("clip_l:").empty()) {
      const int64_t width = nn::check_clip(weights, "clip_l:");
      if (dims_) nn::require_width("vector_in.in_layer.weight", dims_->pooled, "clip_l gives", width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    return weights.has("double_blocks.0.img_attn.qkv.weight") && weights.has("single_blocks.0.linear1.weight") &&
                   weights.has("vector_in.in_layer.weight") && weights.has("txt_in.input_embedder.weight")
               ? 100
               : 0;
  }

  const char* recipe() const override { return hunyuan_video1_text::recipe_yaml; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override { hunyuan_video1::build_denoiser(g, *dims_, sizes); }

  // text: the template's front is left out, pads are zero and no part of it.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("llama3", "llama3_path", "conditioner");
    g.weights().require_component("clip_l", "clip_path", "conditioner");
    const nn::TemplatedPrompt prompt = nn::templated_prompt(g, sizes, "llama3");
    nn::Llm llm(g, "llama3:", llama3, prompt.ids, prompt.mask);
    prompt.output(g, llm.states(nn::Llm::layers(g.weights(), "llama3:") - layers_left_out).back());
    Value ids = g.input("clip_l.input_ids", {sizes["batch"], sizes["clip_l.length"]}, LH_I32);
    g.output("pooled", nn::clip(g, ids, "clip_l:").pooled);
  }

  std::optional<Dimensions> dims_;
};

constexpr lh_model hunyuan_video1_model =
    lora_host::model<HunyuanVideo1>("hunyuan_video1", hunyuan_video1_text::checkpoint_yaml);

}  // namespace
}  // namespace hunyuan_video1

LORA_HOST_PLUGIN("hunyuan_video1", "0.1.0", "MIT OR Apache-2.0",
                 {LH_MODEL_FACTORY, &hunyuan_video1::hunyuan_video1_model})
