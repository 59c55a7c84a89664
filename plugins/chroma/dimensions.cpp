// Dimensions of a Chroma transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace chroma {

using lora_host::Failure;
using lora_host::Weights;

int64_t Dimensions::first_vector(const std::string& name) const {
  if (name == "final_layer") return vectors() - 2;
  const bool single = name.starts_with("single_blocks."), text = name.ends_with(".txt");
  const int64_t block = std::stoll(name.substr(std::string("double_blocks.").size()));
  return single ? 3 * block : 3 * single_blocks + 6 * (block + (text ? double_blocks : 0));
}

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims{lora_host::nn::read_flux_dimensions(w)};
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
