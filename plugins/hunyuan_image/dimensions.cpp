// Dimensions of a HunyuanImage 2.1 transformer and the check that every tensor of it is there with the right shape.
#include <algorithm>

#include "denoiser.h"

namespace hunyuan_image {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const int64_t h = dims.hidden = w.extent("img_in.proj.weight", 0);
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = w.require("final_layer.linear.weight", {-1, h})[0];
  w.require_linear("final_layer.linear", dims.channels, h);
  nn::require_pointwise(w, "img_in.proj", h, dims.channels);
  dims.prompt = nn::read_hunyuan_text(w, h);
  dims.guidance = !w.first_with_prefix("guidance_in.").empty();
  dims.average_velocity = !w.first_with_prefix("time_r_in.").empty();
  nn::require_hunyuan_embedder(w, "time_in", h);
  if (dims.guidance) nn::require_hunyuan_embedder(w, "guidance_in", h);
  if (dims.average_velocity) nn::require_hunyuan_embedder(w, "time_r_in", h);

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

}  // namespace hunyuan_image
