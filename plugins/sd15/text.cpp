#include "text.h"

#include <cmath>

#include "denoiser.h"

namespace sd15 {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

// Stable Diffusion 2 was trained on states before the last of 24 layers. Folders of diffusers hold 23, without that
// one.
constexpr int64_t layers_without_last = 23;

int64_t clip_skip(const Weights& w) {
  const std::string text = w.setting("clip_skip").value_or("1");
  const double number = std::stod(text);
  if (number != std::floor(number))
    throw Failure(LH_E_SETTING, "model.clip_skip: expected a whole number of layers, found " + text);
  return static_cast<int64_t>(number);
}

}  // namespace

TextEncoder read_text_encoder(const Weights& w) {
  const std::string prefix = TextEncoder::prefix;
  TextEncoder encoder{.width = nn::check_clip(w, prefix), .options = {}};
  const int64_t layers = w.count(prefix + "text_model.encoder.layers.", ".layer_norm1.weight");
  const bool second = encoder.width == sd2_text_width;
  if (second) encoder.options.activation = "erf";
  const int64_t asked = clip_skip(w);
  encoder.options.skip = asked - 1 + (second && layers != layers_without_last ? 1 : 0);
  if (encoder.options.skip >= layers)
    throw Failure(LH_E_SETTING, "model.clip_skip: the text encoder has " + std::to_string(layers) +
                                    " layers, of which " + std::to_string(asked) + " leaves none; give a smaller one");
  return encoder;
}

void build_conditioner(Graph& g, const TextEncoder& encoder, const lora_host::Sizes& sizes) {
  const int64_t rows = sizes.has("clip.rows") ? sizes["clip.rows"] : 1;
  Value ids = g.input("clip.input_ids", {sizes["batch"] * rows, sizes["clip.length"]}, LH_I32);
  g.output("text", nn::join_rows(g, nn::clip(g, ids, TextEncoder::prefix, encoder.options).last, rows));
}

}  // namespace sd15
