// The graph of the Z-Image transformer.
//
//   t   = t_embedder(1000 (1 - sigma))                                    [B, 256]
//   x   = x_embedder(patches), filled up with x_pad_token; noise_refiner blocks
//   c   = cap_embedder(text), filled up with cap_pad_token; context_refiner blocks, which t does not reach
//   layers over x then c, final layer over x: patches of data - noise, the velocity with its sign turned
//
// A block: x += tanh(gate) norm2(attention((1 + scale) norm1(x))), and the same with an mlp; scales and gates are
// linear in t. Norms are RMS with eps 1e-5 but for the last one, a layer norm with eps 1e-6.
#include "denoiser.h"

#include "nn/mmdit.hpp"
#include "sequence.h"

namespace z_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-5;

// Half precision does not reach far enough for the products inside of a block: what overflows is held at the end of it.
Value held(Graph& g, Value x) { return g.describe(x).dtype == LH_F16 ? g.clamp(x, -65504, 65504) : x; }

Value attention(Graph& g, const std::string& module, Value x, const nn::RopeTables& rope, Value key_lengths) {
  nn::Qkv qkv = nn::fused_qkv(g, x, module + ".qkv", Dimensions::head_dim, module + ".q_norm.weight",
                              module + ".k_norm.weight", eps);
  return held(g, g.linear(nn::self_attention(g, qkv, rope, key_lengths), module + ".out"));
}

Value feed_forward(Graph& g, const std::string& module, Value x) {
  Value inner = g.mul(g.silu(g.linear(x, module + ".w1")), g.linear(x, module + ".w3"));
  return held(g, g.linear(held(g, inner), module + ".w2"));
}

// t [B, 256]; absent: the block is not modulated.
Value block(Graph& g, const std::string& name, Value x, Value t, const nn::RopeTables& rope, Value key_lengths) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  std::vector<Value> mod(4);  // scale and gate of attention, scale and gate of the mlp
  if (t) mod = nn::modulation(g, t, name + ".adaLN_modulation.0", 4);
  const auto read = [&](const char* norm, Value scale) {
    Value y = g.rms_norm(x, name + norm, eps);
    return t ? g.mul(y, g.affine(scale, 1, 1)) : y;
  };
  const auto add = [&](const char* norm, Value gate, Value y) {
    y = g.rms_norm(y, name + norm, eps);
    x = t ? nn::gated(g, x, g.tanh(gate), y) : g.add(x, y);
  };
  add(".attention_norm2", mod[1],
      attention(g, name + ".attention", read(".attention_norm1", mod[0]), rope, key_lengths));
  add(".ffn_norm2", mod[3], feed_forward(g, name + ".feed_forward", read(".ffn_norm1", mod[2])));
  return x;
}

Value blocks(Graph& g, const std::string& name, int64_t count, Value x, Value t, const nn::RopeTables& rope,
             Value key_lengths) {
  for (int64_t i = 0; i < count; ++i) x = block(g, name + "." + std::to_string(i), x, t, rope, key_lengths);
  return x;
}

// Patches as tokens [B, n, h], filled up to a multiple of 32.
Value embed_patches(Graph& g, Value latents) {
  Value x = g.linear(nn::patchify_channel_last(g, latents, Dimensions::patch), "x_embedder");
  lora_host::Dims d = g.shape(x);
  const int64_t missing = rounded_up(d[1]) - d[1];
  if (missing == 0) return x;
  Value filling = g.reshape(g.param("x_pad_token"), {1, 1, d[2]});
  return g.concat({x, g.expand(filling, {d[0], missing, d[2]})}, 1);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], given = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, given, dims.text});
  Value text_mask = g.input("text_mask", {batch, given}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value t = nn::timestep_embedder(g, g.affine(timestep, -1, 1), 1000.0, "t_embedder", "mlp.0", "mlp.2");
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch;
  const int64_t tokens = rounded_up(rows * columns);
  Value x = embed_patches(g, latents);  // [B, tokens, h]
  const Captions captions(g, text_mask);
  const Positions at = positions(g, captions, rows, columns, tokens);
  x = blocks(g, "noise_refiner", dims.noise_refiners, x, t, at.image, {});

  Value c = g.linear(g.rms_norm(text, "cap_embedder.0", eps), "cap_embedder.1");
  c = captions.fill(c, g.param("cap_pad_token"));  // [B, captions, h]
  c = blocks(g, "context_refiner", dims.context_refiners, c, {}, at.text, captions.key_lengths(0));

  x = blocks(g, "layers", dims.layers, g.concat({x, c}, 1), t, at.both, captions.key_lengths(tokens));
  x = g.slice(x, 1, 0, rows * columns);
  Value scale = nn::modulation(g, g.silu(t), "final_layer.adaLN_modulation.1", 1)[0];
  x = g.linear(g.mul(g.layer_norm(x, 1e-6), g.affine(scale, 1, 1)), "final_layer.linear");
  g.output("output", g.affine(nn::unpatchify_channel_last(g, x, height, width, Dimensions::patch), -1));
}

}  // namespace z_image
