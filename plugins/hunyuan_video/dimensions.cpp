// Dimensions of a HunyuanVideo 1.5 transformer and the check that every tensor of it is there with the right shape.
#include <algorithm>

#include "denoiser.h"

namespace hunyuan_video {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

Dimensions read_dimensions(const Weights& w, bool image_to_video) {
  Dimensions dims;
  const lora_host::Dims in = w.require("img_in.proj.weight");
  const int64_t h = dims.hidden = in[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = w.require("final_layer.linear.weight", {-1, h})[0];
  w.require_linear("final_layer.linear", dims.channels, h);
  dims.taken = 2 * dims.channels + 1;  // the latents, what is shown, and where
  w.require("img_in.proj.weight",
            in.size() == 2 ? lora_host::Dims{h, dims.taken} : lora_host::Dims{h, dims.taken, 1, 1, 1});
  w.require("img_in.proj.bias", {h});
  dims.prompt = nn::read_hunyuan_text(w, h);
  if (image_to_video) {
    dims.image = w.require("vision_in.proj.1.weight", {-1, -1})[1];
    w.require_linear("vision_in.proj.1", dims.image, dims.image);
    w.require_linear("vision_in.proj.3", h, dims.image);
    nn::require_norm(w, "vision_in.proj.0", dims.image);
    nn::require_norm(w, "vision_in.proj.4", h);
  }
  nn::require_hunyuan_embedder(w, "time_in", h);
  w.require("cond_type_embedding.weight", {3, h});

  dims.double_blocks = w.count("double_blocks.", ".img_attn.qkv.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.double_blocks, 1); ++i)
    for (const char* side : {".img", ".txt"})
      nn::require_flux_double(w, "double_blocks." + std::to_string(i) + side, h);
  nn::require_flux_modulations(w, dims);
  return dims;
}

}  // namespace hunyuan_video
