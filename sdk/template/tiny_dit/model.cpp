// The plugin: a class that the host makes for every checkpoint it opens, and the one symbol that the file exports.
#include <cstdlib>
#include <optional>

#include "tiny_dit.h"
#include "tiny_dit_text.hpp"  // checkpoint.yaml and recipe.yaml as constants

namespace tiny_dit {
namespace {

using lora_host::Failure;
using lora_host::Graph;
using lora_host::Sizes;
using lora_host::Weights;

class TinyDit : public lora_host::Model {
 public:
  // Any component may be absent: a text is encoded without the denoiser, and the other way round. What is there has to
  // fit each other.
  explicit TinyDit(const Weights& weights) {
    if (!weights.first_with_prefix("blocks.").empty()) denoiser_ = read_denoiser(weights);
    if (!weights.first_with_prefix("words:").empty()) words_ = read_text_encoder(weights);
    if (!weights.first_with_prefix("vae:").empty()) vae_ = read_autoencoder(weights);
    if (denoiser_ && words_) agree("text.weight takes rows of", denoiser_->text, "words.tokens.weight", words_->width);
    if (denoiser_ && vae_) agree("patch.weight takes latents of", denoiser_->channels, "vae", vae_->channels);
    // Declared under `settings` of checkpoint.yaml: the host has checked that it is a number.
    if (std::optional<std::string> given = weights.setting("text_strength"))
      strength_ = std::strtod(given->c_str(), nullptr);
  }

  // 0 to 100: how sure the plugin is that the denoiser is its own.
  static int32_t probe(const Weights& weights) {
    return weights.has("patch.weight") && weights.has("blocks.0.cross.kv.weight") ? 100 : 0;
  }

  const char* recipe() const override { return tiny_dit_text::recipe_yaml; }

  const char* role(uint32_t index) const override {
    constexpr const char* roles[] = {"denoiser", "conditioner", "vae.encode", "vae.decode"};
    return index < std::size(roles) ? roles[index] : nullptr;
  }

  void build(Graph& g, std::string_view role, const Sizes& sizes) const override {
    if (role == "denoiser") build_denoiser(g, there(denoiser_, role, "the denoiser", "name_or_path"), sizes);
    if (role == "conditioner")
      build_text_encoder(g, there(words_, role, "the text encoder", "words_path"), strength_, sizes);
    if (role == "vae.encode") build_encoder(g, there(vae_, role, "the autoencoder", "vae_path"), sizes);
    if (role == "vae.decode") build_decoder(g, there(vae_, role, "the autoencoder", "vae_path"), sizes);
  }

 private:
  static void agree(const std::string& taker, int64_t takes, const std::string& giver, int64_t gives) {
    if (takes != gives)
      throw Failure(LH_E_MODEL, taker + " " + std::to_string(takes) + ", but " + giver + " gives " +
                                    std::to_string(gives) + ": the files do not belong together");
  }
  template <typename Part>
  static const Part& there(const std::optional<Part>& part, std::string_view role, const char* what, const char* key) {
    if (!part)
      throw Failure(LH_E_MODEL, "role " + std::string(role) + " needs the weights of " + what +
                                    ", which the checkpoint does not hold; give their file as model." + key);
    return *part;
  }

  std::optional<Denoiser> denoiser_;
  std::optional<TextEncoder> words_;
  std::optional<Autoencoder> vae_;
  double strength_ = 1;
};

constexpr lh_model tiny_dit_model = lora_host::model<TinyDit>("tiny_dit", tiny_dit_text::checkpoint_yaml);

}  // namespace
}  // namespace tiny_dit

LORA_HOST_PLUGIN("tiny_dit", "0.1.0", "MIT", {LH_MODEL_FACTORY, &tiny_dit::tiny_dit_model})
