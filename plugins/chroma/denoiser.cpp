// The graph of the Chroma transformer: Flux.1's blocks (nn/flux_blocks.hpp), whose modulation vectors are all made by
// one small network, the approximator, of the time, a guidance that is always 0, and the vector's number:
//
//   row i:   sinusoids of 1000 t, of 0 and of 1000 i, side by side                              [B, N, 4 time]
//   x = in_proj(row);   x = x + out(silu(in(rms_norm(x)))) in each layer;   out_proj(x)         [B, N, h]
//
// Chroma1-Radiance takes patches of the picture by a convolution, and has a head of its own (pixel_head.h).
// Text rows that are not there are never seen.
#include "denoiser.h"

#include "nn/velocity.hpp"

namespace chroma {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

// Sinusoids of 1000 times the index of a vector [1, N, width], in the float32 steps that the weights were trained with:
// exact ones differ in the third digit.
Value index_table(Graph& g, int64_t vectors, int64_t width) {
  std::vector<float> table;
  const int64_t half = width / 2;
  for (int64_t i = 0; i < vectors; ++i)
    for (int64_t column = 0; column < width; ++column) {
      const float step = -std::log(10000.0f) * static_cast<float>(column % half) / static_cast<float>(half);
      const float angle = static_cast<float>(1000 * i) * std::exp(step);
      table.push_back(column < half ? std::cos(angle) : std::sin(angle));
    }
  return g.cast(g.constant({1, vectors, width}, table), LH_FLOAT);
}

// All modulation vectors [B, N, h].
Value approximator(Graph& g, const Dimensions& dims, Value timestep) {
  constexpr double eps = 1e-6;
  const std::string root = "distilled_guidance_layer.";
  auto scope = g.scope("distilled_guidance_layer");
  int64_t batch = g.shape(timestep)[0], rows = dims.vectors();
  Value no_guidance = g.constant({1}, std::vector<float>{0.0f});
  const auto everywhere = [&](Value x, int64_t width) { return g.expand(x, {batch, rows, width}); };
  const auto sinusoid = [&](Value x) {
    Value all = g.timestep_embedding(x, dims.time, 10000.0, 1000.0);
    return everywhere(g.reshape(all, {g.shape(all)[0], 1, dims.time}), dims.time);
  };
  Value x = g.concat(
      {sinusoid(timestep), sinusoid(no_guidance), everywhere(index_table(g, rows, 2 * dims.time), 2 * dims.time)}, -1);
  x = g.linear(x, root + "in_proj");
  for (int64_t i = 0; i < dims.approximator_layers; ++i) {
    const std::string layer = root + "layers." + std::to_string(i);
    Value norm = g.param(nn::flux_norm(g.weights(), root + "norms." + std::to_string(i)));
    x = g.add(x, nn::embedder(g, g.rms_norm(x, eps, norm), layer, "in_layer", "out_layer"));
  }
  return g.linear(x, root + "out_proj");
}

// Noisy pixels f32 [B, H, W, 3] -> velocity
Value from_pixels(Graph& g, const PixelHead& head, nn::FluxTransformer& transformer, Value pixels, Value text,
                  Value timestep) {
  Value img = g.conv2d(g.cast(pixels, LH_FLOAT), "img_in_patch", head.patch);  // [B, rows, columns, h]
  const lora_host::Dims grid = g.shape(img);
  const int64_t tokens = grid[1] * grid[2], length = g.shape(text)[1];
  Value said = transformer.blocks(g.reshape(img, {grid[0], tokens, grid[3]}), g.linear(text, "txt_in"),
                                  transformer.positions(length, {{grid[1], grid[2]}}), tokens);
  Value out = build_pixel_head(g, head, pixels, said);
  return head.gives_picture ? nn::velocity(g, pixels, out, timestep) : out;
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels}, dims.pixels ? LH_F32 : LH_FLOAT);
  Value text = g.input("text", {batch, length, dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);
  const std::vector<int64_t> ones(static_cast<size_t>(dims.vectors()), 1);
  const std::vector<Value> vectors = g.split(approximator(g, dims, timestep), 1, ones);  // [B, 1, h] each
  const auto modulation = [&](const nn::FluxPart& part) {
    const auto first = vectors.begin() + dims.first_vector(part);
    return std::vector<Value>(first, first + part.vectors());
  };
  nn::FluxTransformer transformer(g, dims, modulation, nn::mask_lengths(g, mask));
  g.output("output", dims.pixels ? from_pixels(g, *dims.pixels, transformer, latents, text, timestep)
                                 : transformer(latents, text));
}

}  // namespace chroma
