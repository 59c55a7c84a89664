// Plugin "ltx2": LTX-2, LTX-2.3 and LTX-2.5, of text or a picture, with sound where the user asks for it (model.sound).
// A still image is a video of one frame.
#include <string>

#include "denoiser.h"
#include "ltx2_text.hpp"
#include "nn/ltx2_autoencoder.hpp"
#include "nn/ltx2_vocoder.hpp"
#include "text.h"

namespace ltx2 {
namespace {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Weights;

constexpr nn::LatentModelFacts facts = {.id = "ltx2", .network = "transformer"};

class Ltx2 : public nn::Ltx2LatentModel {
 public:
  // Encoders and VAE can be opened without the denoiser: files that are there have to fit each other.
  explicit Ltx2(const Weights& weights)
      : Ltx2LatentModel(facts),
        frame_rate_(weights.setting("frame_rate").value_or("24")),
        sound_(weights.setting("sound") == "true") {
    if (!weights.first_with_prefix("patchify_proj.").empty()) dims_ = read_dimensions(weights, sound_);
    if (!weights.first_with_prefix("vae:").empty())
      nn::check_ltx2_autoencoder(weights, "vae:", dims_ ? dims_->channels : 0);
    if (sound_) check_sound(weights);
    const TextWidths text = check_text(weights, sound_);
    if (dims_) {
      require_text("", dims_->caption, dims_->text, "connector gives", text.clip);
      if (sound_) require_text("audio_", dims_->caption, dims_->sound->text, "audio_connector gives", text.sound);
    }
    recipe_ = composed_recipe(weights);
  }

  static int32_t probe(const Weights& weights) {
    if (std::optional<std::string> other = relative(weights)) throw Failure(LH_E_MODEL, *other);
    return weights.has("patchify_proj.weight") && weights.has("transformer_blocks.0.attn1.to_q.weight") ? 100 : 0;
  }

  const char* recipe() const override { return recipe_.c_str(); }

 private:
  // Of files without sound it is no matter what they have for it.
  void check_sound(const Weights& weights) const {
    if (!weights.first_with_prefix("audio_vae:").empty())
      nn::check_ltx2_sound_autoencoder(weights, "audio_vae:", dims_ && dims_->sound ? dims_->sound->channels : 0);
    if (!weights.first_with_prefix("vocoder:").empty()) nn::check_ltx2_vocoder(weights, "vocoder:");
  }

  bool has_denoiser() const override { return dims_.has_value(); }
  bool has_sound() const override { return sound_; }
  void build_sound_encode(Graph& g, const Sizes& sizes) const override {
    nn::build_ltx2_sound_encode(g, "audio_vae:", sizes);
  }
  void build_sound_decode(Graph& g, const Sizes& sizes) const override {
    nn::build_ltx2_sound_decode(g, "audio_vae:", "vocoder:", sizes);
  }
  void build_denoiser(Graph& g, const Sizes& sizes) const override {
    ltx2::build_denoiser(g, *dims_, std::stod(frame_rate_), sizes);
  }
  void build_conditioner(Graph& g, const Sizes& sizes) const override { ltx2::build_conditioner(g, sizes, sound_); }

  static void require_text(const std::string& prefix, bool caption, int64_t takes, const char* givers, int64_t given) {
    const std::string asks = caption ? "caption_projection.linear_1.weight" : "attn2.to_k.weight";
    if (given > 0) nn::require_width((caption ? "" : "transformer_blocks.0.") + prefix + asks, takes, givers, given);
  }

  // The vocoder of LTX-2.3 and LTX-2.5 widens the band.
  std::string composed_recipe(const Weights& weights) const {
    using namespace ltx2_text;
    const bool distilled = weights.setting("variant").value_or("dev") == "distilled";
    const std::string text = reads_gemma4(weights) ? (distilled ? recipe_25_distilled_yaml : recipe_25_dev_yaml)
                                                   : (distilled ? recipe_distilled_yaml : recipe_dev_yaml);
    if (!sound_) return text + clip_yaml;
    const bool wide = dims_ ? dims_->prompt_adaln : projects_by_token(weights);
    return text + sound_yaml + "  output_rate: " + (wide ? "48000" : "24000") + "\n  frame_rate: " + frame_rate_ + "\n";
  }

  std::optional<Dimensions> dims_;
  std::string frame_rate_, recipe_;
  bool sound_;
};

constexpr lh_model ltx2_model = lora_host::model<Ltx2>("ltx2", ltx2_text::checkpoint_yaml);

}  // namespace
}  // namespace ltx2

LORA_HOST_PLUGIN("ltx2", "0.1.0", "MIT OR Apache-2.0", {LH_MODEL_FACTORY, &ltx2::ltx2_model})
