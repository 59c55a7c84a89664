// The graph of the AuraFlow transformer.
//
//   vec  = t_embedder(1000 sigma)                                                  [B, h]
//   x    = init_x_linear(patches of 2 x 2) + the middle of positional_encoding     [B, S, h]
//   text = register_tokens, cond_seq_linear(text)                                  [B, R + L, h]
//   double blocks: x and text with weights of their own, one attention over both
//   single blocks: both as one sequence, text in front
//   final_linear((1 + scale) x + shift): patches, channels last
// Rows of pads are attended to. Norms have no weights, those of the heads of q and k either; the last layer has none.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace auraflow {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-5;

// Tokens with weights of their own in a block, around which goes what came in; attention changes what the mlp reads:
//   x + mod[5] mlp((1 + mod[4]) norm(x + mod[2] o(attention)) + mod[3])
class Stream {
 public:
  struct Names {
    std::string modulation, attention, mlp;  // attention: what stands before q, k, v and o
  };
  Stream(Graph& g, Names names, Value x, Value activated)
      : g_(g), names_(std::move(names)), x_(x), mod_(nn::modulation(g, activated, names_.modulation, 6)) {}

  nn::Qkv qkv() const {
    Value y = nn::modulated_norm(g_, x_, mod_[0], mod_[1], eps);
    const auto heads = [&](const char* part) {
      return nn::split_heads(g_, g_.linear(y, names_.attention + part), Dimensions::head_dim);
    };
    return {g_.layer_norm(heads("q"), eps), g_.layer_norm(heads("k"), eps), heads("v")};
  }

  Value behind(Value attention) const {
    Value y = nn::gated(g_, x_, mod_[2], g_.linear(attention, names_.attention + "o"));
    y = nn::modulated_norm(g_, y, mod_[3], mod_[4], eps);
    y = g_.mul(g_.silu(g_.linear(y, names_.mlp + ".c_fc1")), g_.linear(y, names_.mlp + ".c_fc2"));
    return nn::gated(g_, x_, mod_[5], g_.linear(y, names_.mlp + ".c_proj"));
  }

 private:
  Graph& g_;
  Names names_;
  Value x_;
  std::vector<Value> mod_;  // [B, 1, h] each
};

void double_block(Graph& g, int64_t index, Value activated, Value& x, Value& text) {
  const std::string name = "double_layers." + std::to_string(index);
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const Stream image(g, {name + ".modX.1", name + ".attn.w2", name + ".mlpX"}, x, activated),
      words(g, {name + ".modC.1", name + ".attn.w1", name + ".mlpC"}, text, activated);
  const nn::JointAttention at = nn::joint_attention(g, words.qkv(), image.qkv());
  text = words.behind(at.first);
  x = image.behind(at.second);
}

Value single_block(Graph& g, int64_t index, Value activated, Value x) {
  const std::string name = "single_layers." + std::to_string(index);
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const Stream both(g, {name + ".modCX.1", name + ".attn.w1", name + ".mlp"}, x, activated);
  return both.behind(nn::self_attention(g, both.qkv()));
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch;
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, sizes["text_length"], dims.text});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value activated = g.silu(nn::timestep_embedder(g, timestep, 1000.0, "t_embedder", "mlp.0", "mlp.2"));
  Value x = g.linear(nn::patchify_channel_first(g, latents, Dimensions::patch), "init_x_linear");
  // Of an odd number of tokens the middle is nearer to the end.
  const nn::GridCrop middle{dims.grid / 2 - rows / 2, dims.grid / 2 - columns / 2, rows, columns};
  x = g.add(x, nn::cropped_positions(g, "positional_encoding", dims.grid, middle, Dimensions::patch));
  Value registers = g.expand(g.param("register_tokens"), {batch, dims.registers, dims.hidden});
  text = g.concat({registers, g.linear(text, "cond_seq_linear")}, 1);
  for (int64_t i = 0; i < dims.double_blocks; ++i) double_block(g, i, activated, x, text);

  const int64_t words = g.shape(text)[1];
  x = g.concat({text, x}, 1);
  for (int64_t i = 0; i < dims.single_blocks; ++i) x = single_block(g, i, activated, x);

  const std::vector<Value> mod = nn::modulation(g, activated, "modF.1", 2);
  x = g.slice(x, 1, words, rows * columns);
  x = g.linear(g.add(g.mul(x, g.affine(mod[1], 1, 1)), mod[0]), "final_linear");
  g.output("output", nn::unpatchify_channel_last(g, x, height, width, Dimensions::patch));
}

}  // namespace auraflow
