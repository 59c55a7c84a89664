// Dimensions of a HunyuanImage 2.1 transformer and the check that every tensor of it is there with the right shape.
#include <algorithm>

#include "denoiser.h"

namespace hunyuan_image {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_embedder(const Weights& w, const std::string& module, int64_t h) {
  w.require_linear(module + ".in_layer", h, w.require(module + ".in_layer.weight", {h, -1})[1]);
  w.require_linear(module + ".out_layer", h, h);
}

void require_norm(const Weights& w, const std::string& module, int64_t width) {
  w.require(module + ".weight", {width});
  w.require(module + ".bias", {width});
}

void require_refiner(const Weights& w, const std::string& block, int64_t h) {
  const int64_t inner = w.require(block + ".mlp.0.weight", {-1, h})[0];
  w.require_linear(block + ".self_attn.qkv", 3 * h, h);
  w.require_linear(block + ".self_attn.proj", h, h);
  w.require_linear(block + ".mlp.0", inner, h);
  w.require_linear(block + ".mlp.2", h, inner);
  w.require_linear(block + ".adaLN_modulation.1", 2 * h, h);
  for (const char* norm : {".norm1", ".norm2"}) require_norm(w, block + norm, h);
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const int64_t h = dims.hidden = w.require("img_in.proj.weight")[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.proj.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = w.require("final_layer.linear.weight", {-1, h})[0];
  w.require_linear("final_layer.linear", dims.channels, h);
  nn::require_pointwise(w, "img_in.proj", h, dims.channels);
  dims.text = w.require("txt_in.input_embedder.weight", {h, -1})[1];
  w.require_linear("txt_in.input_embedder", h, dims.text);
  dims.guidance = !w.first_with_prefix("guidance_in.").empty();
  dims.average_velocity = !w.first_with_prefix("time_r_in.").empty();
  for (const char* module : {"txt_in.t_embedder", "txt_in.c_embedder", "time_in"}) require_embedder(w, module, h);
  if (dims.guidance) require_embedder(w, "guidance_in", h);
  if (dims.average_velocity) require_embedder(w, "time_r_in", h);
  w.require("txt_in.c_embedder.in_layer.weight", {h, dims.text});

  const std::string refiner = "txt_in.individual_token_refiner.blocks.";
  dims.refiner_blocks = w.count(refiner, ".norm1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(dims.refiner_blocks, 1); ++i)
    require_refiner(w, refiner + std::to_string(i), h);
  dims.glyphs = w.require("byt5_in.layernorm.weight", {-1})[0];
  require_norm(w, "byt5_in.layernorm", dims.glyphs);
  const int64_t first = w.require("byt5_in.fc1.weight", {-1, dims.glyphs})[0];
  const int64_t second = w.require("byt5_in.fc2.weight", {-1, first})[0];
  w.require_linear("byt5_in.fc1", first, dims.glyphs);
  w.require_linear("byt5_in.fc2", second, first);
  w.require_linear("byt5_in.fc3", h, second);

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
