// Plugin "krea2": Krea 2, the base (Raw) and the model that was distilled from it (Turbo), and either of them taught to
// edit: a LoRA that is trained so reads reference pictures.
//
// Both have the same tensors: what is_distilled in a diffusers folder or the user (model.variant) does not say is the
// base, which is the one to train on.
#include <optional>

#include "denoiser.h"
#include "krea2_text.hpp"
#include "nn/llm.hpp"
#include "nn/qwen3_vision.hpp"
#include "nn/shown_picture.hpp"
#include "nn/wan_autoencoder.hpp"

namespace krea2 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "krea2", .network = "transformer"};
// Its positions have three axes, which are equal in a text without images: plain rotary positions.
constexpr nn::LlmFacts qwen3_vl = {
    .head_dim = 128, .eps = 1e-6, .rope_theta = 5e6, .rope_sections = {24, 20, 20}, .sections_in_turns = true};

// The states that are read: behind layers 2, 5, 8, ..., 35 of 36.
std::vector<int64_t> depths(const Weights& weights) {
  std::vector<int64_t> all;
  for (int64_t depth = 2; depth <= nn::Llm::layers(weights, "qwen3_vl:"); depth += 3) all.push_back(depth);
  return all;
}

class Krea2 : public nn::WanLatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Krea2(const Weights& weights) : WanLatentModel(facts) {
    const auto channels = static_cast<int64_t>(nn::wan_latents().mean.size());
    if (!weights.first_with_prefix("txtfusion.").empty()) {
      dims_ = read_dimensions(weights);
      if (dims_->channels != channels)
        throw Failure(LH_E_MODEL, "last.linear.weight: expected " + std::to_string(4 * channels) +
                                      " rows (patches of 2x2 of 16 channels), found " +
                                      std::to_string(4 * dims_->channels));
    }
    const std::string index = weights.document("", "model_index.json").value_or("");
    const bool distilled = index.find("\"is_distilled\": true") != index.npos;
    turbo_ = weights.setting("variant").value_or(distilled ? "turbo" : "base") == "turbo";
    editing_ = {weights.setting("edit") == "true", weights.setting("isolate_references") == "true"};
    if (editing_.isolated && !editing_.references)
      throw Failure(LH_E_SETTING, "isolate_references is true, but there are no references: set edit: true");
    if (!weights.first_with_prefix("vae:").empty()) nn::check_wan_autoencoder(weights, "vae:", channels);
    if (!weights.first_with_prefix("qwen3_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen3_vl:", qwen3_vl, false);
      const auto states = static_cast<int64_t>(depths(weights).size());
      if (dims_) {
        nn::require_width("txtmlp.1.weight", dims_->text, "qwen3_vl gives", width);
        nn::require_width("txtfusion.projector.weight", dims_->states, "the states that are read of qwen3_vl are",
                          states);
      }
      if (editing_.references) check_vision(weights, width);
    }
  }

  static int32_t probe(const Weights& weights) {
    const bool blocks = weights.has("blocks.0.attn.wq.weight") && weights.has("blocks.0.mod.lin");
    return blocks && weights.has("txtfusion.projector.weight") ? 100 : 0;
  }

  const char* recipe() const override {
    if (editing_.references) return turbo_ ? krea2_text::recipe_edit_turbo_yaml : krea2_text::recipe_edit_yaml;
    return turbo_ ? krea2_text::recipe_turbo_yaml : krea2_text::recipe_base_yaml;
  }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override {
    krea2::build_denoiser(g, *dims_, editing_, sizes);
  }

  static void check_vision(const Weights& weights, int64_t width) {
    if (weights.first_with_prefix("qwen3_vl:visual.").empty())
      throw Failure(
          LH_E_MODEL,
          "edit is true, and the text encoder is shown the reference pictures, but qwen3_vl has no vision "
          "tower: expected visual.patch_embed.proj.weight and its like, found none; give a file that has them "
          "as model.qwen3_vl_path, such as qwen3vl_4b_bf16.safetensors");
    nn::check_qwen3_vision(weights, "qwen3_vl:visual.", width);
  }

  // States of several depths side by side, as they are: their fusion is a part of the transformer, whose linears can be
  // trained. The template's front is left out, pads are zero and no part of the text. Where the model's own programs
  // put pads between the prompt and the template's end, these take no position and nothing sees them: the same numbers.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen3_vl", "qwen3_vl_path", "conditioner");
    const nn::TemplatedPrompt prompt = nn::templated_prompt(g, sizes, "qwen3_vl");
    const std::vector<int64_t> read = depths(g.weights());
    constexpr int64_t cell = nn::Qwen3Vision::cell;
    const std::vector<nn::ShownPicture> pictures = nn::shown_pictures(sizes, cell);
    nn::AxisPositions positions;
    if (!pictures.empty()) positions = nn::positions_around(pictures, sizes["qwen3_vl.length"]);
    nn::Llm llm(g, "qwen3_vl:", qwen3_vl, prompt.ids, prompt.mask, positions);
    nn::Qwen3Vision vision(g, "qwen3_vl:visual.");
    for (const nn::ShownPicture& picture : pictures) {
      const nn::Qwen3Vision::Rows rows = vision(nn::picture_input(g, picture, cell));
      llm.show(picture.at, rows.shown, rows.deep);
    }
    const std::vector<Value> states = llm.states(read.back());
    std::vector<Value> chosen;
    for (int64_t depth : read) chosen.push_back(prompt.kept(g, states[static_cast<size_t>(depth)]));
    prompt.output_kept(g, g.concat(chosen, -1));
  }

  std::optional<Dimensions> dims_;
  bool turbo_ = false;
  Editing editing_;
};

constexpr lh_model krea2_model = lora_host::model<Krea2>("krea2", krea2_text::checkpoint_yaml);

}  // namespace
}  // namespace krea2

LORA_HOST_PLUGIN("krea2", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &krea2::krea2_model})
