// How the transformers of HunyuanImage 2.1 and of both HunyuanVideos take a prompt, by the names that ComfyUI gives
// their keys. The first HunyuanVideo has no glyphs.
//
// The text's states go through the token refiner, blocks of the text alone whose gates are made of the time and of the
// mean of the states:
//   c = t_embedder(1000 t) + c_embedder(mean);  x += gate attention(norm(x));  x += gate mlp(norm(x))
// The glyph states, of the words that the prompt has in quotes, go through three linears (byt5_in), and stand with the
// text's own. Nothing but the mask tells rows of the text from each other, so what is there goes to the front, glyphs
// first, and what is not is the end of the keys.
#pragma once

#include <algorithm>

#include "nn/mmdit.hpp"

namespace lora_host::nn {

struct HunyuanTextDimensions {
  static constexpr int64_t head_dim = 128;
  int64_t text = 0;            // width of the text states
  int64_t glyphs = 0;          // width of the glyph states; 0: there are none
  int64_t refiner_blocks = 0;  // blocks of the text alone
};

inline void require_hunyuan_embedder(const Weights& w, const std::string& module, int64_t h) {
  w.require_linear(module + ".in_layer", h, w.require(module + ".in_layer.weight", {h, -1})[1]);
  w.require_linear(module + ".out_layer", h, h);
}

inline void require_norm(const Weights& w, const std::string& module, int64_t width) {
  w.require(module + ".weight", {width});
  w.require(module + ".bias", {width});
}

inline void require_refiner_block(const Weights& w, const std::string& block, int64_t h) {
  const int64_t inner = w.require(block + ".mlp.0.weight", {-1, h})[0];
  w.require_linear(block + ".self_attn.qkv", 3 * h, h);
  w.require_linear(block + ".self_attn.proj", h, h);
  w.require_linear(block + ".mlp.0", inner, h);
  w.require_linear(block + ".mlp.2", h, inner);
  w.require_linear(block + ".adaLN_modulation.1", 2 * h, h);
  for (const char* norm : {".norm1", ".norm2"}) require_norm(w, block + norm, h);
}

// What the text's states go through, of a model without glyphs. Throws where a tensor is missing or of another shape.
// h: width of the transformer.
inline HunyuanTextDimensions read_hunyuan_refiner(const Weights& w, int64_t h) {
  HunyuanTextDimensions dims{.text = w.require("txt_in.input_embedder.weight", {h, -1})[1]};
  w.require_linear("txt_in.input_embedder", h, dims.text);
  for (const char* module : {"txt_in.t_embedder", "txt_in.c_embedder"}) require_hunyuan_embedder(w, module, h);
  w.require("txt_in.c_embedder.in_layer.weight", {h, dims.text});
  const std::string refiner = "txt_in.individual_token_refiner.blocks.";
  dims.refiner_blocks = w.count(refiner, ".norm1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.refiner_blocks, 1); ++i)
    require_refiner_block(w, refiner + std::to_string(i), h);
  return dims;
}

// ... and of one with them.
inline HunyuanTextDimensions read_hunyuan_text(const Weights& w, int64_t h) {
  HunyuanTextDimensions dims = read_hunyuan_refiner(w, h);
  dims.glyphs = w.require("byt5_in.layernorm.weight", {-1})[0];
  require_norm(w, "byt5_in.layernorm", dims.glyphs);
  const int64_t first = w.require("byt5_in.fc1.weight", {-1, dims.glyphs})[0];
  const int64_t second = w.require("byt5_in.fc2.weight", {-1, first})[0];
  w.require_linear("byt5_in.fc1", first, dims.glyphs);
  w.require_linear("byt5_in.fc2", second, first);
  w.require_linear("byt5_in.fc3", h, second);
  return dims;
}

// t f32 [B] in 0..1 -> [B, h]
inline Value hunyuan_time(Graph& g, Value t, const std::string& module) {
  return timestep_embedder(g, t, 1000.0, module, "in_layer", "out_layer");
}

// text [B, L, D], lengths f32 [B], timestep f32 [B] -> [B, L, h]
inline Value hunyuan_refined(Graph& g, const HunyuanTextDimensions& dims, Value text, Value lengths, Value timestep) {
  const Dims d = g.shape(text);
  Value there = g.reshape(length_mask(g, lengths, d[1]), {d[0], d[1], 1});
  Value sum = g.reshape(g.sum(g.mul(g.cast(text, LH_F32), there), {1}), {d[0], d[2]});
  Value mean = g.cast(g.div(sum, g.reshape(lengths, {d[0], 1})), LH_FLOAT);
  Value c = g.silu(g.add(hunyuan_time(g, timestep, "txt_in.t_embedder"),
                         embedder(g, mean, "txt_in.c_embedder", "in_layer", "out_layer")));
  Value seen = g.cast(lengths, LH_I32);
  Value x = g.linear(text, "txt_in.input_embedder");
  for (int64_t i = 0; i < dims.refiner_blocks; ++i) {
    const std::string block = "txt_in.individual_token_refiner.blocks." + std::to_string(i);
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    const std::vector<Value> gates = modulation(g, c, block + ".adaLN_modulation.1", 2);
    const Qkv qkv = fused_qkv(g, g.layer_norm(x, block + ".norm1", 1e-6), block + ".self_attn.qkv",
                              HunyuanTextDimensions::head_dim, "", "");
    x = gated(g, x, gates[0], g.linear(self_attention(g, qkv, {}, seen), block + ".self_attn.proj"));
    Value y = g.silu(g.linear(g.layer_norm(x, block + ".norm2", 1e-6), block + ".mlp.0"));
    x = held(g, gated(g, x, gates[1], g.linear(y, block + ".mlp.2")));
  }
  return x;
}

// states [B, G, E] -> [B, G, h]. The norm has the eps of PyTorch.
inline Value hunyuan_glyphs(Graph& g, Value states) {
  Value x = g.layer_norm(states, "byt5_in.layernorm", 1e-5);
  x = g.gelu(g.linear(x, "byt5_in.fc1"), "erf");
  x = g.gelu(g.linear(x, "byt5_in.fc2"), "erf");
  return g.linear(x, "byt5_in.fc3");
}

// Rows of the text as the blocks see them, those that are there in front.
struct TextRows {
  Value x, lengths;  // [B, ., h], f32 [B]
};

// Lengths f32 [B] of glyphs as they count: a prompt without quotes has the end token's row alone, which is none.
inline Value several(Graph& g, Value lengths) { return g.mul(lengths, g.clamp(g.affine(lengths, 1, -1), 0, 1)); }

// Row p of G + L is glyph p where the sample has so many, and behind them the text's from its first. Rows that are left
// over show the last one of all, and are not seen.
inline TextRows glyphs_before_text(Graph& g, const TextRows& glyphs, const TextRows& text) {
  const Dims d = g.shape(text.x);
  const int64_t batch = d[0], room = g.shape(glyphs.x)[1], all = room + d[1];
  std::vector<float> places;
  for (int64_t p = 0; p < all; ++p) places.push_back(static_cast<float>(p));
  Value place = g.expand(g.constant({1, all}, places), {batch, all});
  Value there = g.expand(g.reshape(glyphs.lengths, {batch, 1}), {batch, all});
  Value behind = g.clamp(g.affine(g.sub(place, there), 1, 1), 0, 1);  // 1: of the text
  Value skipped = g.affine(there, -1, static_cast<double>(room));
  Value from = g.clamp(g.add(place, g.mul(behind, skipped)), 0, static_cast<double>(all - 1));
  return {g.take(g.concat({glyphs.x, text.x}, 1), g.cast(from, LH_I32)), g.add(glyphs.lengths, text.lengths)};
}

}  // namespace lora_host::nn
