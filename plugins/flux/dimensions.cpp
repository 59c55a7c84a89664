// Dimensions of a Flux.1 transformer and the check that every tensor of it is there with the right shape.
#include "denoiser.h"

namespace flux {

using lora_host::Weights;

namespace {

void require_embedder(const Weights& w, const std::string& module, int64_t hidden) {
  w.require_linear(module + ".in_layer", hidden, w.require(module + ".in_layer.weight", {hidden, -1})[1]);
  w.require_linear(module + ".out_layer", hidden, hidden);
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  constexpr int64_t patch = lora_host::nn::FluxDimensions::patch;
  const lora_host::Dims embedder = w.require("img_in.weight", {-1, -1});
  const int64_t channels = w.require("final_layer.linear.weight", {-1, embedder[0]})[0] / (patch * patch);
  const int64_t beside = channels + Dimensions::mask_pixels;
  const bool fill = embedder[1] == (channels + beside) * patch * patch;
  Dimensions dims{lora_host::nn::read_flux_dimensions(w, fill ? beside : 0)};
  dims.fill = fill;
  int64_t h = dims.hidden;
  dims.pooled = w.require("vector_in.in_layer.weight", {h, -1})[1];
  dims.guidance = w.has("guidance_in.in_layer.weight");
  for (const char* module : {"vector_in", "time_in", "guidance_in"})
    if (dims.guidance || module != std::string("guidance_in")) require_embedder(w, module, h);
  lora_host::nn::require_flux_modulations(w, dims);
  return dims;
}

}  // namespace flux
