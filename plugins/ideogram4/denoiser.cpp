// The graph of the Ideogram 4 transformer.
//
//   c = silu(adaln_proj(mlp(sinusoid(10000 (1 - sigma))))) [B, a]
//   blocks over input_proj(latents) and llm_cond_proj(norm(text)) as one sequence; each kind has a vector of its own
//   (embed_image_indicator) that is added to it
//   velocity = -final.linear((1 + final.adaln(silu c)) layer_norm(x))
//
// Blocks are those of nn/next_dit.hpp, modulated by c. The text's norm is RMS with eps 1e-6.
//
// A position has three axes, which share the frequencies of a head in turns. Token j of the text stands at (j, j, j)
// and place (row, column) of the image at (65536, 65536 + row, 65536 + column): the order in the sequence is free. The
// text is behind the image, so that what is not there is the end of the keys.
#include "denoiser.h"

#include <cmath>

namespace ideogram4 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double text_eps = 1e-6, final_eps = 1e-6;
constexpr double rope_theta = 5e6;
constexpr int64_t image_position = 65536;

// Of so many frequencies of a head, beginning with the largest, two of three turn by row and column; all others by the
// first axis.
constexpr size_t shared_frequencies = 60;

nn::RopeTables positions(Graph& g, int64_t head, int64_t rows, int64_t columns, int64_t text) {
  const std::vector<double> frequencies = nn::rope_frequencies(head, rope_theta);
  nn::RopeAngles angles;
  const auto add = [&](const std::array<int64_t, 3>& at) {
    for (size_t i = 0; i < frequencies.size(); ++i)
      angles.add(static_cast<double>(at[i < shared_frequencies ? i % 3 : 0]) * frequencies[i]);
  };
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      add({image_position, image_position + row, image_position + column});
  for (int64_t j = 0; j < text; ++j) add({j, j, j});
  nn::RopeTables tables = angles.tables(g, {rows * columns + text, head / 2});
  tables.interleaved = false;
  return tables;
}

// The model's time runs from noise to image. Of the n sinusoids the last has the wave of 10000: angles are
// 10000^(-k / (n - 1)).
Value time_embedding(Graph& g, int64_t hidden, Value sigma) {
  const auto n = static_cast<double>(hidden / 2);
  Value sinusoid = g.timestep_embedding(g.affine(sigma, -1, 1), hidden, std::pow(10000.0, n / (n - 1)), 10000.0, true);
  Value t = nn::embedder(g, sinusoid, "t_embedding", "mlp_in", "mlp_out");
  return g.silu(g.linear(t, "adaln_proj"));
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], rows = sizes["height"], columns = sizes["width"], length = sizes["text_length"];
  const int64_t places = rows * columns, hidden = dims.layer.hidden;
  Value latents = g.input("latents", {batch, rows, columns, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value c = time_embedding(g, hidden, timestep);
  const std::vector<Value> kinds =
      g.split(g.reshape(g.param("embed_image_indicator.weight"), {2, 1, hidden}), 0, {1, 1});
  Value image = g.linear(g.reshape(latents, {batch, places, dims.channels}), "input_proj");
  Value states = g.linear(g.rms_norm(text, "llm_cond_norm", text_eps), "llm_cond_proj");
  Value x = g.concat({g.add(image, kinds[1]), g.add(states, kinds[0])}, 1);

  const nn::RopeTables rope = positions(g, dims.layer.head_dim, rows, columns, length);
  Value seen = g.cast(g.affine(nn::mask_lengths(g, mask), 1, static_cast<double>(places)), LH_I32);
  x = nn::next_dit_blocks(g, "layers", dims.layers, dims.layer, x, c, rope, seen);

  Value scale = g.linear(g.silu(c), "final_layer.adaln_modulation");
  x = g.layer_norm(g.slice(x, 1, 0, places), final_eps);
  x = g.mul(x, g.affine(g.reshape(scale, {batch, 1, hidden}), 1, 1));
  x = g.linear(x, "final_layer.linear");
  g.output("output", g.reshape(g.affine(x, -1), {batch, rows, columns, dims.channels}));
}

}  // namespace ideogram4
