// Dimensions of a Z-Image transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace z_image {

using lora_host::Failure;
using lora_host::Weights;

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const lora_host::Dims in = w.require("x_embedder.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0], places = Dimensions::patch * Dimensions::patch;
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "x_embedder.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  const int64_t out = w.require("final_layer.linear.weight", {-1, h})[0];
  if (in[1] != out || out % places != 0)
    throw Failure(LH_E_MODEL, "x_embedder.weight: expected as many columns as final_layer.linear has rows, " +
                                  std::to_string(out) + " (patches of 2x2), found " + std::to_string(in[1]) +
                                  "; variants that take further images cannot be trained here");
  dims.channels = out / places;
  w.require_linear("x_embedder", h, out);
  dims.text = w.require("cap_embedder.0.weight", {-1})[0];
  w.require_linear("cap_embedder.1", h, dims.text);
  for (const char* token : {"x_pad_token", "cap_pad_token"}) w.require(token, {1, h});

  const lora_host::Dims first = w.require("t_embedder.mlp.0.weight", {-1, -1});
  dims.time = w.require("t_embedder.mlp.2.weight", {-1, first[0]})[0];
  w.require_linear("t_embedder.mlp.0", first[0], first[1]);
  w.require_linear("t_embedder.mlp.2", dims.time, first[0]);
  const lora_host::nn::NextDit dit = dims.blocks();
  dims.noise_refiners = lora_host::nn::require_next_dit_blocks(w, "noise_refiner", dit, true);
  dims.context_refiners = lora_host::nn::require_next_dit_blocks(w, "context_refiner", dit, false);
  dims.layers = lora_host::nn::require_next_dit_blocks(w, "layers", dit, true);
  w.require_linear("final_layer.adaLN_modulation.1", h, dims.time);
  w.require_linear("final_layer.linear", out, h);
  return dims;
}

}  // namespace z_image
