// The graph of the HunyuanImage 2.1 transformer: the blocks of Flux.1 (nn/flux_blocks.hpp) with one token for each
// place of the latents, whose modulations are linears of
//
//   vec = time_in(1000 t) [+ guidance_in(1000 guidance)]                                        [B, h]
//   of MeanFlow (time_in(1000 t) + time_r_in(1000 end)) / 2 in its place, end: the time at which the step ends
//
// Positions have two axes, row and column, of 32 pairs each with base 256; the text has none.
//
// The text's states go through the token refiner, blocks of the text alone whose gates are made of the time and of the
// mean of the states:
//   c = t_embedder(1000 t) + c_embedder(mean);  x += gate attention(norm(x));  x += gate mlp(norm(x))
// The glyph states, of the words that the prompt has in quotes, go through three linears (byt5_in), and stand with the
// text's own. Nothing but the mask tells rows of the text from each other, so what is there goes to the front, glyphs
// first, and what is not is the end of the keys. A prompt without quotes has one glyph row, the end token's, which
// counts as none; where that is so for a whole batch, the graph has no glyphs.
#include "denoiser.h"

namespace hunyuan_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

Value time_embedder(Graph& g, Value t, const std::string& module) {
  return nn::timestep_embedder(g, t, 1000.0, module, "in_layer", "out_layer");
}

// text [B, L, D], lengths f32 [B] -> [B, L, h]
Value refined(Graph& g, const Dimensions& dims, Value text, Value lengths, Value timestep) {
  const lora_host::Dims d = g.shape(text);
  Value there = g.reshape(nn::length_mask(g, lengths, d[1]), {d[0], d[1], 1});
  Value sum = g.reshape(g.sum(g.mul(g.cast(text, LH_F32), there), {1}), {d[0], d[2]});
  Value mean = g.cast(g.div(sum, g.reshape(lengths, {d[0], 1})), LH_FLOAT);
  Value c = g.silu(g.add(time_embedder(g, timestep, "txt_in.t_embedder"),
                         nn::embedder(g, mean, "txt_in.c_embedder", "in_layer", "out_layer")));
  Value seen = g.cast(lengths, LH_I32);
  Value x = g.linear(text, "txt_in.input_embedder");
  for (int64_t i = 0; i < dims.refiner_blocks; ++i) {
    const std::string block = "txt_in.individual_token_refiner.blocks." + std::to_string(i);
    auto scope = g.scope(block, LH_SCOPE_CHECKPOINT);
    const std::vector<Value> gates = nn::modulation(g, c, block + ".adaLN_modulation.1", 2);
    const nn::Qkv qkv = nn::fused_qkv(g, g.layer_norm(x, block + ".norm1", eps), block + ".self_attn.qkv",
                                      Dimensions::head_dim, "", "");
    x = nn::gated(g, x, gates[0], g.linear(nn::self_attention(g, qkv, {}, seen), block + ".self_attn.proj"));
    Value y = g.silu(g.linear(g.layer_norm(x, block + ".norm2", eps), block + ".mlp.0"));
    x = nn::held(g, nn::gated(g, x, gates[1], g.linear(y, block + ".mlp.2")));
  }
  return x;
}

// states [B, G, E] -> [B, G, h]. The norm has the eps of PyTorch.
Value glyph_tokens(Graph& g, Value states) {
  Value x = g.layer_norm(states, "byt5_in.layernorm", 1e-5);
  x = g.gelu(g.linear(x, "byt5_in.fc1"), "erf");
  x = g.gelu(g.linear(x, "byt5_in.fc2"), "erf");
  return g.linear(x, "byt5_in.fc3");
}

// Rows of the text as the blocks see them, those that are there in front.
struct Rows {
  Value x, lengths;  // [B, ., h], f32 [B]
};

// Row p of G + L is glyph p where the sample has so many, and behind them the text's from its first. Rows that are left
// over show the last one of all, and are not seen.
Rows glyphs_before_text(Graph& g, const Rows& glyphs, const Rows& text) {
  const lora_host::Dims d = g.shape(text.x);
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

nn::RopeTables positions(Graph& g, int64_t rows, int64_t columns, int64_t text) {
  const std::vector<double> frequencies = nn::rope_frequencies(Dimensions::head_dim / 2, 256.0);
  const std::vector<double> unplaced(frequencies.size());
  nn::RopeAngles angles;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      for (int64_t position : {row, column}) angles.add(position, frequencies);
  for (int64_t i = 0; i < 2 * text; ++i) angles.add(0, unplaced);
  return angles.tables(g, {rows * columns + text, Dimensions::head_dim / 2});
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
  const int64_t room = sizes["glyphs_length"], places = height * width;
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, sizes["text_length"], dims.text});
  Value text_lengths = g.cast(g.input("text_lengths", {batch}, LH_I32), LH_F32);
  Value glyphs = g.input("glyphs", {batch, room, dims.glyphs});
  Value glyph_lengths = g.cast(g.input("glyph_lengths", {batch}, LH_I32), LH_F32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = time_embedder(g, timestep, "time_in");
  if (dims.average_velocity) {
    Value end = time_embedder(g, g.input("step_end", {batch}, LH_F32), "time_r_in");
    vec = g.affine(g.add(vec, end), 0.5);
  }
  if (dims.guidance) vec = g.add(vec, time_embedder(g, g.input("guidance", {batch}, LH_F32), "guidance_in"));
  Value activated = g.silu(vec);

  Rows rows{refined(g, dims, text, text_lengths, timestep), text_lengths};
  if (room > 1) {
    Value several = g.clamp(g.affine(glyph_lengths, 1, -1), 0, 1);  // 0: the end token alone
    rows = glyphs_before_text(g, {glyph_tokens(g, glyphs), g.mul(glyph_lengths, several)}, rows);
  }
  Value img = g.reshape(nn::pointwise(g, latents, "img_in.proj"), {batch, places, dims.hidden});
  nn::FluxTransformer transformer(
      g, dims, [&](const nn::FluxPart& part) { return nn::modulation(g, activated, part.linear(), part.vectors()); },
      rows.lengths);
  Value out = transformer.between(img, rows.x, positions(g, height, width, g.shape(rows.x)[1]), places);
  g.output("output", g.reshape(out, {batch, height, width, dims.channels}));
}

}  // namespace hunyuan_image
