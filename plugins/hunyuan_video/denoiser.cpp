// The graph of the HunyuanVideo 1.5 transformer: the double blocks of Flux.1 (nn/flux_blocks.hpp) and none of its
// single ones, with one token for each place of the latents, whose modulations are linears of time_in(1000 t).
//
// Positions have three axes, frame, row and column, of 8, 28 and 28 pairs with base 256; the text has none.
//
// The text is read as nn/hunyuan_text.hpp has it; a learned vector is added to rows of the text and another one to
// glyphs (cond_type_embedding). Behind the latents the first layer takes, as channels, what image-to-video is shown,
// the latents of its first frame and zeros behind them, and where, 1 or 0. What SigLIP sees (vision_in) stands before
// glyphs and text, with a vector of its own. For text-to-video these channels are zero, and the rows of a picture are
// not seen: neither is in the graph.
#include "denoiser.h"

#include "nn/video_positions.hpp"

namespace hunyuan_video {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

// Rows [B, n, h] with the vector of their kind.
Value of_kind(Graph& g, Value rows, int64_t kind) {
  Value vector = g.slice(g.param("cond_type_embedding.weight"), 0, kind, 1);
  return g.add(rows, g.reshape(vector, {1, 1, g.shape(rows)[2]}));
}

// [B, t, H, W, C] -> [B, t, H, W, 2 C + 1]
Value behind_noise(Graph& g, Value latents) {
  const lora_host::Dims d = g.shape(latents);
  std::vector<float> given(static_cast<size_t>(d[1]), 0.0f);
  given.front() = 1.0f;
  Value mask = g.cast(g.constant({1, d[1], 1, 1, 1}, given), LH_FLOAT);
  Value shown = g.mul(g.input("first_frame", d), mask);  // what is grey behind it is zero here
  return g.concat({latents, shown, g.expand(mask, {d[0], d[1], d[2], d[3], 1})}, -1);
}

// Tokens [B, t H W, h] of latents [B, t, H, W, C], and of what is behind them if there is something.
Value tokens(Graph& g, const Dimensions& dims, Value x) {
  const lora_host::Dims d = g.shape(x);
  Value weight = g.reshape(g.param("img_in.proj.weight"), {dims.hidden, dims.taken});
  if (d[4] < dims.taken) weight = g.slice(weight, 1, 0, d[4]);
  return g.linear(g.reshape(x, {d[0], d[1] * d[2] * d[3], d[4]}), weight, g.param("img_in.proj.bias"));
}

// What SigLIP says of a picture [B, N, I] -> rows [B, N, h].
Value picture_rows(Graph& g, Value image) {
  constexpr double eps = 1e-5;
  Value x = g.linear(g.layer_norm(image, "vision_in.proj.0", eps), "vision_in.proj.1");
  return g.layer_norm(g.linear(g.gelu(x, "erf"), "vision_in.proj.3"), "vision_in.proj.4", eps);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], time = sizes["time"], height = sizes["height"], width = sizes["width"];
  const int64_t room = sizes["glyphs_length"], places = time * height * width;
  Value latents = g.input("latents", {batch, time, height, width, dims.channels});
  Value text = g.input("text", {batch, sizes["text_length"], dims.prompt.text});
  Value text_lengths = g.cast(g.input("text_lengths", {batch}, LH_I32), LH_F32);
  Value glyphs = g.input("glyphs", {batch, room, dims.prompt.glyphs});
  Value glyph_lengths = g.cast(g.input("glyph_lengths", {batch}, LH_I32), LH_F32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value activated = g.silu(nn::hunyuan_time(g, timestep, "time_in"));
  Value refined = nn::hunyuan_refined(g, dims.prompt, text, text_lengths, timestep);
  nn::TextRows rows{of_kind(g, refined, 0), text_lengths};
  if (room > 1)
    rows =
        nn::glyphs_before_text(g, {of_kind(g, nn::hunyuan_glyphs(g, glyphs), 1), nn::several(g, glyph_lengths)}, rows);
  if (dims.image > 0) {
    const int64_t seen = sizes["image_length"];
    Value picture = of_kind(g, picture_rows(g, g.input("image", {batch, seen, dims.image})), 2);
    rows = {g.concat({picture, rows.x}, 1), g.affine(rows.lengths, 1, static_cast<double>(seen))};
  }
  nn::FluxTransformer transformer(
      g, dims, [&](const nn::FluxPart& part) { return nn::modulation(g, activated, part.linear(), part.vectors()); },
      rows.lengths);
  Value out = transformer.between(
      tokens(g, dims, dims.image > 0 ? behind_noise(g, latents) : latents), rows.x,
      nn::video_positions(g, {time, height, width}, g.shape(rows.x)[1], {16, 56, 56}, 256.0), places);
  g.output("output", g.reshape(out, g.shape(latents)));
}

}  // namespace hunyuan_video
