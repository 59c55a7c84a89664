// Dimensions of the first HunyuanVideo's transformer and the check that every tensor of it is there with the right
// shape.
#include <algorithm>

#include "denoiser.h"

namespace hunyuan_video1 {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

Dimensions read_dimensions(const Weights& w) {
  constexpr int64_t patch = Dimensions::patch;
  Dimensions dims;
  const int64_t h = dims.hidden = w.require("img_in.proj.weight")[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  const int64_t out = w.require("final_layer.linear.weight", {-1, h})[0];
  w.require_linear("final_layer.linear", out, h);
  dims.channels = out / (patch * patch);
  w.require("img_in.proj.weight", {h, dims.channels, 1, patch, patch});
  w.require("img_in.proj.bias", {h});
  dims.prompt = nn::read_hunyuan_refiner(w, h);
  for (const char* module : {"time_in", "vector_in", "guidance_in"}) nn::require_hunyuan_embedder(w, module, h);
  dims.pooled = w.require("vector_in.in_layer.weight")[1];

  dims.double_blocks = w.count("double_blocks.", ".img_attn.qkv.weight");
  dims.single_blocks = w.count("single_blocks.", ".linear1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.double_blocks, 1); ++i)
    for (const char* side : {".img", ".txt"})
      nn::require_flux_double(w, "double_blocks." + std::to_string(i) + side, h);
  for (int64_t i = 0; i < std::max<int64_t>(dims.single_blocks, 1); ++i)
    nn::require_flux_single(w, "single_blocks." + std::to_string(i), h);
  nn::require_flux_modulations(w, dims);
  return dims;
}

}  // namespace hunyuan_video1
