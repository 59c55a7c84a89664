// The graph of the ERNIE-Image transformer.
//
//   c = time_embedding(1000 sigma) [B, h]
//   layers over x_embedder(latents) and text_proj(text) as one sequence, all of them modulated by the same six vectors
//   m = adaLN_modulation.1(silu c) [B, 6h]
//   velocity = final_linear((1 + scale) layer_norm(x) + shift) of the image's tokens, (scale, shift) =
//   final_norm.linear(c)
//
// A layer: x += gate attention((1 + scale) norm(x) + shift), x += gate linear_fc2(gelu(gate_proj y) * up_proj y), y the
// modulated norm of x. Norms of layers and of queries and keys are RMS; all have eps 1e-6.
//
// The text is behind the image, so that what is not there is the end of the keys.
#include "denoiser.h"

#include "nn/mmdit.hpp"
#include "positions.h"

namespace ernie_image {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

struct Sequence {
  nn::RopeTables positions;
  Value seen;  // i32 [B]: so many keys
};

Value attention(Graph& g, const std::string& module, Value x, const Sequence& sequence) {
  Value q = g.linear(x, module + ".to_q"), k = g.linear(x, module + ".to_k"), v = g.linear(x, module + ".to_v");
  const nn::Qkv qkv =
      nn::heads(g, q, k, v, Dimensions::head, module + ".norm_q.weight", module + ".norm_k.weight", eps);
  return g.linear(nn::self_attention(g, qkv, sequence.positions, sequence.seen), module + ".to_out.0");
}

Value feed_forward(Graph& g, const std::string& module, Value x) {
  Value gate = g.gelu(g.linear(x, module + ".gate_proj"), "erf");
  return g.linear(g.mul(gate, g.linear(x, module + ".up_proj")), module + ".linear_fc2");
}

Value modulated(Graph& g, Value x, const std::string& norm, Value shift, Value scale) {
  return g.add(g.mul(g.rms_norm(x, norm, eps), g.affine(scale, 1, 1)), shift);
}

// m: shift, scale and gate of attention and of the mlp, [B, 1, h] each.
Value layer(Graph& g, const std::string& name, Value x, const std::vector<Value>& m, const Sequence& sequence) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  Value y = modulated(g, x, name + ".adaLN_sa_ln", m[0], m[1]);
  x = nn::gated(g, x, m[2], attention(g, name + ".self_attention", y, sequence));
  y = modulated(g, x, name + ".adaLN_mlp_ln", m[3], m[4]);
  return nn::gated(g, x, m[5], feed_forward(g, name + ".mlp", y));
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  const int64_t places = height * width;
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value lengths = g.input("text_lengths", {batch}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  const int64_t sinusoid = g.weights().require("time_embedding.linear_1.weight", {dims.hidden, -1})[1];
  Value c = g.timestep_embedding(timestep, sinusoid, 10000.0, 1000.0, true);
  c = nn::embedder(g, c, "time_embedding", "linear_1", "linear_2");
  const std::vector<Value> mod = nn::modulation(g, g.silu(c), "adaLN_modulation.1", 6);

  Value x = g.reshape(nn::pointwise(g, latents, "x_embedder.proj"), {batch, places, dims.hidden});
  x = g.concat({x, g.linear(text, "text_proj")}, 1);
  const Sequence sequence = {positions(g, height, width, length, lengths),
                             g.affine(lengths, 1, static_cast<double>(places))};
  for (int64_t i = 0; i < dims.layers; ++i) x = layer(g, "layers." + std::to_string(i), x, mod, sequence);

  const std::vector<Value> last = nn::modulation(g, c, "final_norm.linear", 2);  // scale, shift
  x = nn::modulated_norm(g, g.slice(x, 1, 0, places), last[1], last[0], eps);
  g.output("output", g.reshape(g.linear(x, "final_linear"), {batch, height, width, dims.channels}));
}

}  // namespace ernie_image
