// Dimensions of a Flux.2 transformer and the check that every tensor of it is there with the right shape.
#include "flux2.h"
#include "nn/flux_blocks.hpp"

namespace flux2 {

using lora_host::Failure;
using lora_host::Weights;

namespace {

void require_norms(const Weights& w, const std::string& name) {
  for (const char* norm : {".query_norm", ".key_norm"})
    w.require(lora_host::nn::flux_norm(w, name + norm), {Dimensions::head_dim});
}

void require_embedder(const Weights& w, const std::string& module, int64_t hidden) {
  w.require(module + ".in_layer.weight", {hidden, -1});
  w.require_linear(module + ".out_layer", hidden, hidden, false);
}

int64_t count_blocks(const Weights& w, const std::string& name, const std::string& marker) {
  const int64_t count = w.count(name + ".", marker);
  if (count == 0) throw Failure(LH_E_MODEL, "missing tensor " + name + ".0" + marker);
  return count;
}

}  // namespace

Dimensions read_dimensions(const Weights& w) {
  Dimensions dims;
  const lora_host::Dims in = w.require("img_in.weight", {-1, -1});
  const int64_t h = dims.hidden = in[0];
  if (h < 1 || h % Dimensions::head_dim != 0)
    throw Failure(LH_E_MODEL,
                  "img_in.weight: expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
  dims.channels = w.require("final_layer.linear.weight", {-1, h})[0];
  if (in[1] != dims.channels)
    throw Failure(LH_E_MODEL, "img_in.weight: expected as many columns as final_layer.linear has rows, " +
                                  std::to_string(dims.channels) + ", found " + std::to_string(in[1]) +
                                  "; variants that take further images cannot be trained here");
  dims.text = w.require("txt_in.weight", {h, -1})[1];
  dims.guidance = w.has("guidance_in.in_layer.weight");
  require_embedder(w, "time_in", h);
  if (dims.guidance) require_embedder(w, "guidance_in", h);
  for (const char* stream : {"double_stream_modulation_img.lin", "double_stream_modulation_txt.lin"})
    w.require_linear(stream, 6 * h, h, false);
  w.require_linear("single_stream_modulation.lin", 3 * h, h, false);
  w.require_linear("final_layer.adaLN_modulation.1", 2 * h, h, false);

  dims.double_blocks = count_blocks(w, "double_blocks", ".img_attn.qkv.weight");
  dims.single_blocks = count_blocks(w, "single_blocks", ".linear1.weight");
  const int64_t inner = dims.inner = w.require("double_blocks.0.img_mlp.2.weight", {h, -1})[1];
  for (int64_t i = 0; i < dims.double_blocks; ++i)
    for (const char* side : {".img", ".txt"}) {
      const std::string stream = "double_blocks." + std::to_string(i) + side;
      w.require_linear(stream + "_attn.qkv", 3 * h, h, false);
      w.require_linear(stream + "_attn.proj", h, h, false);
      w.require_linear(stream + "_mlp.0", 2 * inner, h, false);
      w.require_linear(stream + "_mlp.2", h, inner, false);
      require_norms(w, stream + "_attn.norm");
    }
  for (int64_t i = 0; i < dims.single_blocks; ++i) {
    const std::string block = "single_blocks." + std::to_string(i);
    w.require_linear(block + ".linear1", 3 * h + 2 * inner, h, false);
    w.require_linear(block + ".linear2", h, h + inner, false);
    require_norms(w, block + ".norm");
  }
  return dims;
}

}  // namespace flux2
