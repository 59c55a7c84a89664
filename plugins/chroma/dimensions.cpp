// Dimensions of a Chroma transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace chroma {

using lora_host::Failure;
using lora_host::Weights;
using lora_host::nn::FluxPart;

int64_t Dimensions::first_vector(const FluxPart& part) const {
  const int64_t own = part.block * part.vectors(), doubles = 3 * single_blocks;
  switch (part.kind) {
    case FluxPart::single: return own;
    case FluxPart::image: return doubles + own;
    case FluxPart::text: return doubles + 6 * double_blocks + own;
    case FluxPart::last: break;
  }
  return doubles + 12 * double_blocks;
}

namespace {

Dimensions read_ends(const Weights& w) {
  if (!has_pixel_head(w)) return {lora_host::nn::read_flux_dimensions(w)};
  const int64_t hidden = w.require("img_in_patch.weight", {-1, PixelHead::channels, -1, -1})[0];
  lora_host::nn::require_flux_heads("img_in_patch.weight", hidden);
  Dimensions dims{lora_host::nn::read_flux_blocks(w, hidden)};
  dims.pixels = read_pixel_head(w, hidden);
  dims.channels = PixelHead::channels;
  return dims;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims = read_ends(w);
  const std::string root = "distilled_guidance_layer.";
  lora_host::Dims in = w.require(root + "in_proj.weight", {-1, -1});
  if (in[1] % 8 != 0)
    throw Failure(LH_E_MODEL, root + "in_proj.weight: expected a multiple of 8 columns (sinusoids of time, guidance " +
                                  "and index), found " + std::to_string(in[1]));
  int64_t wide = in[0];
  dims.time = in[1] / 4;
  dims.approximator_layers = w.count(root + "layers.", ".in_layer.weight");
  w.require_linear(root + "in_proj", wide, in[1]);
  for (int64_t i = 0; i < std::max<int64_t>(dims.approximator_layers, 1); ++i) {
    std::string number = std::to_string(i);
    for (const char* part : {".in_layer", ".out_layer"}) w.require_linear(root + "layers." + number + part, wide, wide);
    w.require(lora_host::nn::flux_norm(w, root + "norms." + number), {wide});
  }
  w.require_linear(root + "out_proj", dims.hidden, wide);
  return dims;
}

}  // namespace chroma
