// The conditioner: token ids to rows of text. An embedding with learned places, then one block of attention in which
// every token sees every other one, and an mlp:
//
//   x = tokens[ids] + places;   x = x + attention(norm(x));   x = x + mlp(norm(x));   text = strength norm(x)
//
// Texts of a batch are padded to one length on the right. Pads are never seen: attention is told how many keys are
// there (key_lengths), which is fast on every device, and text_mask tells the host which rows to keep.
#include <cmath>

#include "nn/layers.hpp"
#include "tiny_dit.h"

namespace tiny_dit {

namespace nn = lora_host::nn;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;
constexpr int64_t head = 16;  // width of a head: no weight's shape says it

Value attention(Graph& g, Value x, int64_t width, Value lengths) {
  auto scope = g.scope("words:attention", LH_SCOPE_CHECKPOINT);
  Value all = g.linear(g.rms_norm(x, "words:attention.norm", eps), "words:attention.qkv");
  std::vector<Value> parts = g.split(all, -1, {width, width, width});
  for (Value& part : parts) part = nn::split_heads(g, part, head);  // [B, L, H, D]
  Value seen = g.attention(parts[0], parts[1], parts[2], 1 / std::sqrt(double{head}), {}, lengths);
  return g.add(x, g.linear(nn::merge_heads(g, seen), "words:attention.out"));
}

Value mlp(Graph& g, Value x) {
  auto scope = g.scope("words:mlp", LH_SCOPE_CHECKPOINT);
  Value h = g.linear(g.rms_norm(x, "words:mlp.norm", eps), "words:mlp.0");
  return g.add(x, g.linear(g.gelu(h, "erf"), "words:mlp.2"));
}

}  // namespace

void build_text_encoder(Graph& g, const TextEncoder& dims, double strength, const lora_host::Sizes& sizes) {
  int64_t batch = sizes["batch"], length = sizes["words.length"];
  if (length > dims.places)
    throw Failure(LH_E_SETTING, "a text of " + std::to_string(length) + " tokens: words.places.weight has places for " +
                                    std::to_string(dims.places));
  Value ids = g.input("words.input_ids", {batch, length}, LH_I32);
  Value mask = g.input("words.attention_mask", {batch, length}, LH_I32);
  Value lengths = g.cast(nn::mask_lengths(g, mask), LH_I32);

  Value places = g.slice(g.param("words:places.weight"), 0, 0, length);
  Value x = g.add(g.embedding(ids, "words:tokens"), g.reshape(places, {1, length, dims.width}));
  x = mlp(g, attention(g, x, dims.width, lengths));
  g.output("text", g.affine(g.rms_norm(x, "words:norm", eps), strength));
  g.output("text_mask", mask);  // the rows that are there come first; only those are kept
}

}  // namespace tiny_dit
