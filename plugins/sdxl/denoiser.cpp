// The graph of SDXL:
//
//   embedding = time_embed(sinusoid(timestep)) + label_emb(pooled | sinusoids of the six size ids)      [B, E]
//   output    = UNet(latents, embedding, text), for inpainting UNet(latents | mask | masked image, ...)
#include "denoiser.h"

namespace sdxl {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

constexpr int64_t size_width = Dimensions::size_ids * Dimensions::size_id_width;

void require_embedder(const Weights& w, const std::string& module, int64_t hidden, int64_t in) {
  w.require_linear(module + ".0", hidden, in);
  w.require_linear(module + ".2", hidden, hidden);
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims{.unet = nn::UNetReader(w).read()};
  int64_t label = w.require("label_emb.0.0.weight", {-1, -1})[1];
  if (label <= size_width)
    throw Failure(LH_E_MODEL, "label_emb.0.0.weight: expected more than " + std::to_string(size_width) +
                                  " columns (a pooled vector and six size ids), found " + std::to_string(label));
  dims.pooled = label - size_width;
  require_embedder(w, "time_embed", dims.unet.embedding, w.require("time_embed.0.weight", {-1, -1})[1]);
  require_embedder(w, "label_emb.0", dims.unet.embedding, label);
  return dims;
}

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  int64_t batch = sizes["batch"];
  Value text = g.input("text", {batch, sizes["text_length"], dims.unet.context});
  Value pooled = g.input("pooled", {batch, dims.pooled});
  Value size_ids = g.input("size_ids", {batch, Dimensions::size_ids}, LH_F32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value flat = g.reshape(size_ids, {batch * Dimensions::size_ids});
  Value size = g.reshape(g.timestep_embedding(flat, Dimensions::size_id_width), {batch, size_width});
  Value embedding = g.add(nn::timestep_embedder(g, timestep, 1.0, "time_embed", "0", "2"),
                          nn::embedder(g, g.concat({pooled, size}, -1), "label_emb.0", "0", "2"));
  g.output("output", nn::UNet(g, dims.unet, embedding, text)(nn::unet_latents(g, dims.unet, sizes)));
}

}  // namespace sdxl
