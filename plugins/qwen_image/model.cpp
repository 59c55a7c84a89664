// Plugin "qwen_image": Qwen-Image and Qwen-Image-2512, and those that edit, Edit, Edit-2509 and Edit-2511. All have the
// same tensors: the user (model.variant), the index of a diffusers directory or the mark of a file says that it is one
// of these.
#include <algorithm>
#include <array>
#include <optional>

#include "denoiser.h"
#include "nn/llm.hpp"
#include "nn/qwen_vision.hpp"
#include "nn/shown_picture.hpp"
#include "nn/wan_autoencoder.hpp"
#include "qwen_image_text.hpp"

namespace qwen_image {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Value;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "qwen_image", .network = "transformer"};
constexpr nn::LlmFacts qwen2_5_vl = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6, .rope_sections = {16, 24, 24}};

struct Variant {
  const char* name;
  const char* recipe;
  Editing editing;
};
constexpr std::array<Variant, 4> variants = {{{"base", qwen_image_text::recipe_yaml, {}},
                                              {"edit", qwen_image_text::recipe_edit_yaml, {true, false}},
                                              {"edit-2509", qwen_image_text::recipe_edit_2509_yaml, {true, false}},
                                              {"edit-2511", qwen_image_text::recipe_edit_2511_yaml, {true, true}}}};

class QwenImage : public nn::WanLatentModel {
 public:
  // The encoder and the VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit QwenImage(const Weights& weights) : WanLatentModel(facts) {
    const auto channels = static_cast<int64_t>(nn::wan_latents().mean.size());
    if (!weights.first_with_prefix("img_in.").empty()) {
      dims_ = read_dimensions(weights);
      if (dims_->channels != channels)
        throw Failure(LH_E_MODEL, "proj_out.weight: expected " + std::to_string(4 * channels) +
                                      " rows (patches of 2x2 of 16 channels), found " +
                                      std::to_string(4 * dims_->channels));
    }
    choose_variant(weights);
    if (!weights.first_with_prefix("vae:").empty()) nn::check_wan_autoencoder(weights, "vae:", channels);
    if (!weights.first_with_prefix("qwen2_5_vl:").empty()) {
      const int64_t width = nn::check_llm(weights, "qwen2_5_vl:", qwen2_5_vl);
      if (dims_) nn::require_width("txt_in.weight", dims_->text, "qwen2_5_vl gives", width);
      if (variant_->editing.references) check_vision(weights, width);
    }
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    const bool streams =
        weights.has("transformer_blocks.0.img_mod.1.weight") && weights.has("transformer_blocks.0.txt_mod.1.weight");
    return streams && weights.has("txt_norm.weight") ? 100 : 0;
  }

  const char* recipe() const override { return variant_->recipe; }

 private:
  bool has_denoiser() const override { return dims_.has_value(); }
  void build_denoiser(Graph& g, const Sizes& sizes) const override {
    qwen_image::build_denoiser(g, *dims_, variant_->editing, sizes);
  }

  void choose_variant(const Weights& weights) {
    const std::optional<std::string> said = weights.setting("variant"), found = edit_variant(weights);
    if (said && *said != "edit-2511" && found == "edit-2511")
      throw Failure(LH_E_MODEL, "variant is " + *said +
                                    ", but the checkpoint is Edit-2511 (__index_timestep_zero__ in the file, or "
                                    "zero_cond_t in its folder's config.json): set variant: edit-2511");
    const std::string name = said.value_or(found.value_or("base"));
    variant_ = &*std::ranges::find(variants, name, [](const Variant& variant) { return std::string(variant.name); });
  }

  void check_vision(const Weights& weights, int64_t width) const {
    if (weights.first_with_prefix("qwen2_5_vl:visual.").empty())
      throw Failure(LH_E_MODEL,
                    std::string("variant ") + variant_->name +
                        " shows the text encoder its reference pictures, but qwen2_5_vl has no vision tower: "
                        "expected visual.patch_embed.proj.weight and its like, found none; give a file that "
                        "has them as model.qwen2_5_vl_path, such as qwen_2.5_vl_7b.safetensors");
    nn::check_qwen_vision(weights, "qwen2_5_vl:visual.", width);
  }

  // The last states, behind the final norm; the template's front is left out, pads are zero and no part of the text.
  void build_conditioner(Graph& g, const Sizes& sizes) const override {
    g.weights().require_component("qwen2_5_vl", "qwen2_5_vl_path", "conditioner");
    const nn::TemplatedPrompt prompt = nn::templated_prompt(g, sizes, "qwen2_5_vl");
    constexpr int64_t cell = nn::QwenVision::cell;
    const std::vector<nn::ShownPicture> pictures = nn::shown_pictures(sizes, cell);
    const int64_t length = sizes["qwen2_5_vl.length"];
    nn::Llm llm(g, "qwen2_5_vl:", qwen2_5_vl, prompt.ids, prompt.mask, nn::positions_around(pictures, length));
    nn::QwenVision vision(g, "qwen2_5_vl:visual.");
    for (const nn::ShownPicture& picture : pictures) llm.show(picture.at, vision(nn::picture_input(g, picture, cell)));
    prompt.output(g, llm.final_norm(llm.states(nn::Llm::layers(g.weights(), "qwen2_5_vl:")).back()));
  }

  std::optional<Dimensions> dims_;
  const Variant* variant_ = nullptr;
};

constexpr lh_model qwen_image_model = lora_host::model<QwenImage>("qwen_image", qwen_image_text::checkpoint_yaml);

}  // namespace
}  // namespace qwen_image

LORA_HOST_PLUGIN("qwen_image", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &qwen_image::qwen_image_model})
