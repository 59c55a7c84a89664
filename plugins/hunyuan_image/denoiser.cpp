// The graph of the HunyuanImage 2.1 transformer: the blocks of Flux.1 (nn/flux_blocks.hpp) with one token for each
// place of the latents, whose modulations are linears of
//
//   vec = time_in(1000 t) [+ guidance_in(1000 guidance)]                                        [B, h]
//   of MeanFlow (time_in(1000 t) + time_r_in(1000 end)) / 2 in its place, end: the time at which the step ends
//
// Positions have two axes, row and column, of 32 pairs each with base 256; the text has none.
//
// The text is read as nn/hunyuan_text.hpp has it. A prompt without quotes has one glyph row, the end token's, which
// counts as none; where that is so for a whole batch, the graph has no glyphs.
#include "denoiser.h"

namespace hunyuan_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

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
  Value text = g.input("text", {batch, sizes["text_length"], dims.prompt.text});
  Value text_lengths = g.cast(g.input("text_lengths", {batch}, LH_I32), LH_F32);
  Value glyphs = g.input("glyphs", {batch, room, dims.prompt.glyphs});
  Value glyph_lengths = g.cast(g.input("glyph_lengths", {batch}, LH_I32), LH_F32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = nn::hunyuan_time(g, timestep, "time_in");
  if (dims.average_velocity) {
    Value end = nn::hunyuan_time(g, g.input("step_end", {batch}, LH_F32), "time_r_in");
    vec = g.affine(g.add(vec, end), 0.5);
  }
  if (dims.guidance) vec = g.add(vec, nn::hunyuan_time(g, g.input("guidance", {batch}, LH_F32), "guidance_in"));
  Value activated = g.silu(vec);

  nn::TextRows rows{nn::hunyuan_refined(g, dims.prompt, text, text_lengths, timestep), text_lengths};
  if (room > 1) rows = nn::glyphs_before_text(g, {nn::hunyuan_glyphs(g, glyphs), nn::several(g, glyph_lengths)}, rows);
  Value img = g.reshape(nn::pointwise(g, latents, "img_in.proj"), {batch, places, dims.hidden});
  nn::FluxTransformer transformer(
      g, dims, [&](const nn::FluxPart& part) { return nn::modulation(g, activated, part.linear(), part.vectors()); },
      rows.lengths);
  Value out = transformer.between(img, rows.x, positions(g, height, width, g.shape(rows.x)[1]), places);
  g.output("output", g.reshape(out, {batch, height, width, dims.channels}));
}

}  // namespace hunyuan_image
