// The denoiser: noisy latents, text and time to a velocity. Image tokens are patches of 2 x 2 latents. Each block has
// attention among them, attention from them to the text, and an mlp; the time modulates the first and the last:
//
//   y = (1 + scale) norm(x) + shift;   x = x + gate self(y);   x = x + cross(norm(x), text);   x = x + gate mlp(y)
//
// Every linear is called by its module's name: that is where LoRA finds it.
#include "nn/mmdit.hpp"
#include "tiny_dit.h"

namespace tiny_dit {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

class Block {
 public:
  Block(Graph& g, const Denoiser& dims, int64_t index) : g_(g), dims_(dims), name_("blocks." + std::to_string(index)) {}

  // time: silu of the time's embedding. text, lengths: rows, and how many of each sample's are there.
  Value operator()(Value x, Value time, Value text, Value lengths, const nn::RopeTables& places) {
    auto scope = g_.scope(name_, LH_SCOPE_CHECKPOINT);  // may be computed again in the backward pass, to save memory
    std::vector<Value> mod = nn::modulation(g_, time, name_ + ".modulation", 6);
    x = nn::gated(g_, x, mod[2], self(nn::modulated_norm(g_, x, mod[0], mod[1]), places));
    x = g_.add(x, cross(g_.layer_norm(x, eps), text, lengths));
    Value y = nn::modulated_norm(g_, x, mod[3], mod[4]);
    return nn::gated(g_, x, mod[5], nn::mlp(g_, y, name_ + ".mlp.0", name_ + ".mlp.2"));
  }

 private:
  Value self(Value y, const nn::RopeTables& places) {
    std::string part = name_ + ".self";
    nn::Qkv heads =
        nn::fused_qkv(g_, y, part + ".qkv", dims_.head, part + ".q_norm.weight", part + ".k_norm.weight", eps);
    return g_.linear(nn::self_attention(g_, heads, places), part + ".out");
  }

  Value cross(Value y, Value text, Value lengths) {
    std::string part = name_ + ".cross";
    std::vector<Value> kv = g_.split(g_.linear(text, part + ".kv"), -1, {dims_.hidden, dims_.hidden});
    nn::Qkv heads = nn::heads(g_, g_.linear(y, part + ".q"), kv[0], kv[1], dims_.head, part + ".q_norm.weight",
                              part + ".k_norm.weight", eps);
    return g_.linear(nn::self_attention(g_, heads, {}, lengths), part + ".out");
  }

  Graph& g_;
  const Denoiser& dims_;
  std::string name_;
};

// Rotary tables of the image tokens: half of a head turns with the row, half with the column.
nn::RopeTables token_places(Graph& g, const Denoiser& dims, int64_t rows, int64_t columns) {
  std::vector<std::array<int64_t, 2>> places;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) places.push_back({row, column});
  return nn::rope_tables<2>(g, places, {dims.head / 2, dims.head / 2}, 100.0);
}

}  // namespace

void build_denoiser(Graph& g, const Denoiser& dims, const lora_host::Sizes& sizes) {
  int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  // `latents` are always there; the other names are this model's own, and the recipe says what they are given.
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value lengths = g.input("text_lengths", {batch}, LH_I32);
  Value time = g.input("time", {batch}, LH_F32);

  Value activated = g.silu(nn::timestep_embedder(g, time, 1000.0, "time", "0", "2"));
  text = g.linear(text, "text");
  nn::RopeTables places = token_places(g, dims, height / patch, width / patch);
  Value x = g.linear(nn::patchify_channel_last(g, latents, patch), "patch");
  for (int64_t i = 0; i < dims.blocks; ++i) x = Block(g, dims, i)(x, activated, text, lengths, places);
  std::vector<Value> mod = nn::modulation(g, activated, "last.modulation", 2);
  x = g.linear(nn::modulated_norm(g, x, mod[0], mod[1]), "last.linear");
  g.output("output", nn::unpatchify_channel_last(g, x, height, width, patch));
}

}  // namespace tiny_dit
