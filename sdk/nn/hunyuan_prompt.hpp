// The conditioner of HunyuanImage 2.1 and HunyuanVideo 1.5: Qwen2.5-VL reads the prompt, ByT5 what it has in quotes.
#pragma once

#include <vector>

#include "nn/hunyuan_text.hpp"
#include "nn/latent_model.hpp"
#include "nn/llm.hpp"
#include "nn/t5.hpp"

namespace lora_host::nn {

inline constexpr int64_t hunyuan_glyph_width = 1472;
// Of Qwen2.5-VL the language model alone: positions of a text without images are plain ones.
inline constexpr LlmFacts hunyuan_llm = {.head_dim = 128, .eps = 1e-6, .rope_theta = 1e6};
inline constexpr int64_t hunyuan_layers_left_out = 2;  // the last ones

// Throws where an encoder that is there lacks a tensor, or does not fit the transformer, if there is one.
inline void check_hunyuan_encoders(const Weights& weights, const HunyuanTextDimensions* transformer) {
  if (!weights.first_with_prefix("qwen2_5_vl:").empty()) {
    const int64_t width = check_llm(weights, "qwen2_5_vl:", hunyuan_llm, false);
    if (transformer) require_width("txt_in.input_embedder.weight", transformer->text, "qwen2_5_vl gives", width);
  }
  if (!weights.first_with_prefix("byt5:").empty()) {
    const int64_t width = check_t5(weights, "byt5:");
    if (transformer) require_width("byt5_in.fc1.weight", transformer->glyphs, "byt5 gives", width);
  }
}

// glyphs: of a prompt without quotes the end token's row alone. width: of the states where ByT5 has no file, without
// which no prompt has any.
inline void build_hunyuan_glyphs(Graph& g, const Sizes& sizes, int64_t batch, int64_t width) {
  if (!sizes.has("byt5.length")) {
    const std::vector<float> none(static_cast<size_t>(batch * width));
    g.output("glyphs", g.cast(g.constant({batch, 1, width}, none), LH_FLOAT));
    g.output("glyphs_mask", g.constant({batch, 1}, std::vector<int32_t>(static_cast<size_t>(batch), 1)));
    return;
  }
  const int64_t length = sizes["byt5.length"];
  Value ids = g.input("byt5.input_ids", {batch, length}, LH_I32);
  Value mask = g.input("byt5.attention_mask", {batch, length}, LH_I32);
  Value states = t5(g, ids, "byt5:", g.cast(mask_lengths(g, mask), LH_I32));
  g.output("glyphs", masked_rows(g, states, mask));
  g.output("glyphs_mask", mask);
}

// text: the states before the last two layers, without the final norm; the template's front is left out, pads are zero
// and no part of it.
inline void build_hunyuan_conditioner(Graph& g, const Sizes& sizes, int64_t glyph_width) {
  g.weights().require_component("qwen2_5_vl", "qwen2_5_vl_path", "conditioner");
  const TemplatedPrompt prompt = templated_prompt(g, sizes, "qwen2_5_vl");
  Llm llm(g, "qwen2_5_vl:", hunyuan_llm, prompt.ids, prompt.mask);
  prompt.output(g, llm.states(Llm::layers(g.weights(), "qwen2_5_vl:") - hunyuan_layers_left_out).back());
  build_hunyuan_glyphs(g, sizes, sizes["batch"], glyph_width);
}

}  // namespace lora_host::nn
