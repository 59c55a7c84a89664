// Reads the dimensions of each component from its weights, and checks that all tensors fit them: what is wrong with a
// file is said here, by the tensor's name, and not by an op deep inside a graph.
#include "tiny_dit.h"

namespace tiny_dit {

using lora_host::Failure;
using lora_host::Weights;

Denoiser read_denoiser(const Weights& w) {
  Denoiser d;
  lora_host::Dims in = w.require("patch.weight", {-1, -1});  // -1: any length
  d.hidden = in[0];
  d.channels = in[1] / (patch * patch);
  d.text = w.require("text.weight", {d.hidden, -1})[1];
  d.time = w.require("time.0.weight", {d.hidden, -1})[1];
  d.head = w.require("blocks.0.self.q_norm.weight", {-1})[0];
  d.blocks = w.count("blocks.", ".self.qkv.weight");
  if (d.channels * patch * patch != in[1] || d.head % 4 != 0 || d.hidden % d.head != 0 || d.time % 2 != 0)
    throw Failure(LH_E_MODEL, "patch.weight " + lora_host::dims_text(in) + ", heads of " + std::to_string(d.head) +
                                  " and " + std::to_string(d.time) + " sinusoids do not make a transformer");
  w.require_linear("time.2", d.hidden, d.hidden);
  for (int64_t i = 0; i < d.blocks; ++i) {
    std::string block = "blocks." + std::to_string(i);
    w.require_linear(block + ".modulation", 6 * d.hidden, d.hidden);
    w.require_linear(block + ".self.qkv", 3 * d.hidden, d.hidden);
    w.require_linear(block + ".cross.q", d.hidden, d.hidden);
    w.require_linear(block + ".cross.kv", 2 * d.hidden, d.hidden);
    w.require_linear(block + ".mlp.0", 4 * d.hidden, d.hidden);
    w.require_linear(block + ".mlp.2", d.hidden, 4 * d.hidden);
    for (const char* attention : {".self", ".cross"}) {
      w.require_linear(block + attention + ".out", d.hidden, d.hidden);
      for (const char* norm : {".q_norm.weight", ".k_norm.weight"}) w.require(block + attention + norm, {d.head});
    }
  }
  w.require_linear("last.modulation", 2 * d.hidden, d.hidden);
  w.require_linear("last.linear", in[1], d.hidden);
  return d;
}

// Weights of a component other than the denoiser are called "<component>:<key>".
TextEncoder read_text_encoder(const Weights& w) {
  TextEncoder d;
  d.width = w.require("words:tokens.weight", {-1, -1})[1];
  d.places = w.require("words:places.weight", {-1, d.width})[0];
  w.require_linear("words:attention.qkv", 3 * d.width, d.width);
  w.require_linear("words:attention.out", d.width, d.width);
  w.require_linear("words:mlp.0", 2 * d.width, d.width);
  w.require_linear("words:mlp.2", d.width, 2 * d.width);
  for (const char* norm : {"attention.norm", "mlp.norm", "norm"})
    w.require(std::string("words:") + norm + ".weight", {d.width});
  return d;
}

Autoencoder read_autoencoder(const Weights& w) {
  Autoencoder d;
  d.channels = w.require("vae:decoder.in.weight", {-1, -1, 3, 3})[1];
  d.levels = w.count("vae:encoder.down.", ".conv.weight");
  w.require("vae:encoder.in.weight", {-1, 3, 3, 3});
  w.require("vae:encoder.out.weight", {2 * d.channels, -1, 3, 3});
  w.require("vae:decoder.out.weight", {3, -1, 3, 3});
  for (const char* statistic : {"vae:latent_mean", "vae:latent_scale"}) w.require(statistic, {d.channels});
  if (int64_t up = w.count("vae:decoder.up.", ".conv.weight"); up != d.levels)
    throw Failure(LH_E_MODEL, "vae:decoder.up.*: expected " + std::to_string(d.levels) +
                                  " levels as the encoder has, found " + std::to_string(up));
  return d;
}

}  // namespace tiny_dit
