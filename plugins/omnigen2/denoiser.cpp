// The graph of the transformer.
//
//   t = silu(timestep_embedder(1000 (1 - sigma)))        [B, time]: the model's time runs from noise, 0, to data, 1
//   x = x_embedder(patches); noise_refiner blocks
//   r = ref_image_patch_embedder(patches) + the row of image_index_embedding that is its number; ref_image_refiner
//       blocks, of each reference alone
//   c = caption_embedder(rms_norm(text)); context_refiner blocks, which t does not reach
//   layers over x, all r, c; final layer over x: patches of data - noise, the velocity with its sign turned
//
// Blocks are those of nn/next_dit.hpp, modulated by t. The last norm is a layer norm with eps 1e-6.
#include "denoiser.h"

#include "positions.h"

namespace omnigen2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double time_scale = 1000;

// References [B, S, h] behind their refiner: each is refined alone, so that all are one batch.
std::vector<Value> refined(Graph& g, const Dimensions& dims, const std::vector<Value>& pictures, Value t,
                           const std::vector<nn::RopeTables>& places) {
  const int64_t batch = g.shape(t)[0], hidden = dims.blocks.hidden;
  Value index = g.param("image_index_embedding");  // [references, h]
  std::vector<Value> patches, numbers, cosines, sines;
  for (size_t i = 0; i < pictures.size(); ++i) {
    patches.push_back(nn::patchify_channel_last(g, pictures[i], Dimensions::patch));
    Value number = g.reshape(g.slice(index, 0, static_cast<int64_t>(i), 1), {1, 1, hidden});
    numbers.push_back(g.expand(number, {batch, 1, hidden}));
    cosines.push_back(places[i].cos);
    sines.push_back(places[i].sin);
  }
  Value r = g.add(g.linear(g.concat(patches, 0), "ref_image_patch_embedder"), g.concat(numbers, 0));
  Value times = g.concat(std::vector<Value>(pictures.size(), t), 0);
  r = nn::next_dit_blocks(g, "ref_image_refiner", dims.reference_refiners, dims.blocks, r, times,
                          {g.concat(cosines, 0), g.concat(sines, 0)});
  return g.split(r, 0, std::vector<int64_t>(pictures.size(), batch));
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], given = sizes["text_length"];
  const lora_host::Dims image{batch, height, width, dims.channels};
  Value latents = g.input("latents", image);
  Value text = g.input("text", {batch, given, dims.text});
  Value text_mask = g.input("text_mask", {batch, given}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);
  std::vector<Value> references;
  for (const char* name : {"reference", "reference_2", "reference_3", "reference_4", "reference_5"})
    if (sizes.has(name)) references.push_back(g.input(name, image));
  const auto pictures = static_cast<int64_t>(references.size());
  if (pictures > dims.references)
    throw lora_host::Failure(LH_E_SETTING, "images: the model tells " + std::to_string(dims.references) +
                                               " reference pictures apart (image_index_embedding), found " +
                                               std::to_string(pictures));

  Value t = g.silu(nn::timestep_embedder(g, g.affine(timestep, -1, 1), time_scale,
                                         "time_caption_embed.timestep_embedder", "linear_1", "linear_2"));
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch, places = rows * columns;
  Value there = nn::mask_lengths(g, text_mask);
  // Whatever a mask holds, it is a row of a table.
  Value lengths = g.cast(g.clamp(there, 0, static_cast<double>(given)), LH_I32);
  const Positions at = positions(g, lengths, given, pictures, rows, columns, dims.blocks.head_dim);

  Value x = g.linear(nn::patchify_channel_last(g, latents, Dimensions::patch), "x_embedder");  // [B, places, h]
  x = nn::next_dit_blocks(g, "noise_refiner", dims.noise_refiners, dims.blocks, x, t, at.image);
  std::vector<Value> sequence{x};
  if (pictures > 0)
    for (Value reference : refined(g, dims, references, t, at.references)) sequence.push_back(reference);

  const std::string caption = "time_caption_embed.caption_embedder.";
  Value c = g.linear(g.rms_norm(text, caption + "0", nn::NextDit::eps), caption + "1");
  c = nn::next_dit_blocks(g, "context_refiner", dims.context_refiners, dims.blocks, c, {}, at.text,
                          g.cast(there, LH_I32));
  sequence.push_back(c);

  Value seen = g.cast(g.affine(there, 1, static_cast<double>((1 + pictures) * places)), LH_I32);
  x = nn::next_dit_blocks(g, "layers", dims.layers, dims.blocks, g.concat(sequence, 1), t, at.all, seen);
  x = g.slice(x, 1, 0, places);
  Value scale = nn::modulation(g, t, "norm_out.linear_1", 1)[0];
  x = g.linear(g.mul(g.layer_norm(x, 1e-6), g.affine(scale, 1, 1)), "norm_out.linear_2");
  g.output("output", g.affine(nn::unpatchify_channel_last(g, x, height, width, Dimensions::patch), -1));
}

}  // namespace omnigen2
