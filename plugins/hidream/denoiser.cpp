// The graph of the HiDream-I1 transformer.
//
//   vec  = t_embedder(1000 sigma) + p_embedder(pooled)                                          [B, h]
//   x    = x_embedder(patches of 2 x 2)                                                         [B, S, h]
//   text = caption_projection(t5), caption_projection(the last state of Llama)                  [B, L + M, h]
//   double blocks: x and text with weights of their own, one attention over both
//   single blocks: both as one sequence;   final layer: a modulated norm and a linear back to patches
// Each block is also shown one layer's state of Llama, projected by a linear of its own: rows behind the text that are
// attended to and go no further. Blocks behind the last layer see its state. Tokens of an image stand at (0, row,
// column) on three rotary axes of 64, 32 and 32, text at the origin, where nothing turns. Norms of q and k are over all
// heads at once.
//
// The mlp of x is a mixture of experts: softmax(gate x) are their shares, and a token goes through the two that have
// the largest. In a recorded graph shapes stand still, whatever the tokens choose: every expert runs over all tokens,
// and those that a token did not choose have no share in it.
#include "denoiser.h"

#include <numeric>

#include "nn/mmdit.hpp"
#include "nn/video_positions.hpp"

namespace hidream {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double theta = 10000, qk_eps = 1e-5;

// w2(silu(w1 x) * w3 x)
Value swiglu(Graph& g, Value x, const std::string& module) {
  return g.linear(g.mul(g.silu(g.linear(x, module + ".w1")), g.linear(x, module + ".w3")), module + ".w2");
}

// f32 [B, S, E]: a token's share in each expert, 0 in those that it does not choose.
Value shares(Graph& g, Value x, const std::string& module) {
  Value scores = g.softmax(g.cast(g.linear(x, g.param(module + ".gate.weight")), LH_F32));
  const Dims d = g.shape(scores);
  std::vector<int32_t> numbers(static_cast<size_t>(d[2]));
  std::iota(numbers.begin(), numbers.end(), 0);
  // By their places: values may be equal.
  Value places = g.reshape(g.top_k(scores, Dimensions::picked)[1], {d[0], d[1], Dimensions::picked, 1});
  Value chosen = g.sum(g.equal(places, g.constant({d[2]}, numbers)), {2});
  return g.mul(scores, g.cast(g.reshape(chosen, d), LH_F32));
}

Value experts(Graph& g, Value x, const std::string& module) {
  Value share = g.cast(shares(g, x, module), LH_FLOAT), y = swiglu(g, x, module + ".shared_experts");
  for (int64_t e = 0; e < g.shape(share)[2]; ++e)
    y = g.add(y, g.mul(swiglu(g, x, module + ".experts." + std::to_string(e)), g.slice(share, -1, e, 1)));
  return y;
}

// q of the first `asking` tokens, k and v of all. end: "_t" for the text of a double block.
nn::Qkv qkv(Graph& g, Value x, const std::string& attention, const std::string& end, int64_t asking) {
  const auto normed = [&](const std::string& part) {
    Value y = g.linear(x, attention + ".to_" + part + end);
    return g.rms_norm(y, attention + "." + part + "_rms_norm" + end, qk_eps);
  };
  Value q = normed("q");
  if (asking < g.shape(q)[1]) q = g.slice(q, 1, 0, asking);
  return nn::heads(g, q, normed("k"), g.linear(x, attention + ".to_v" + end), Dimensions::head_dim, "", "");
}

struct Builder {
  Graph& g;
  const Dimensions& dims;
  Value activated;  // silu(vec), where every modulation starts
  Value llama;      // [B, M, n D]

  // What block `index` is shown.
  Value shown(int64_t index) const {
    const int64_t state = std::min(index, dims.states() - 1);
    return g.linear(g.slice(llama, -1, state * dims.llama, dims.llama),
                    "caption_projection." + std::to_string(index) + ".linear");
  }

  void double_block(int64_t index, Value& x, Value& text, const nn::RopeTables& rope) const {
    const std::string name = "double_stream_blocks." + std::to_string(index) + ".block", attention = name + ".attn1";
    auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
    const std::vector<Value> mod = nn::modulation(g, activated, name + ".adaLN_modulation.1", 12);
    Value seen = nn::modulated_norm(g, g.concat({text, shown(index)}, 1), mod[6], mod[7]);
    const nn::JointAttention at =
        nn::joint_attention(g, qkv(g, nn::modulated_norm(g, x, mod[0], mod[1]), attention, "", g.shape(x)[1]),
                            qkv(g, seen, attention, "_t", g.shape(text)[1]), {rope, {}});
    x = nn::gated(g, x, mod[2], g.linear(at.first, attention + ".to_out"));
    text = nn::gated(g, text, mod[8], g.linear(at.second, attention + ".to_out_t"));
    x = nn::gated(g, x, mod[5], experts(g, nn::modulated_norm(g, x, mod[3], mod[4]), name + ".ff_i"));
    text = nn::gated(g, text, mod[11], swiglu(g, nn::modulated_norm(g, text, mod[9], mod[10]), name + ".ff_t"));
  }

  // Tables of the tokens that ask, and of all.
  void single_block(int64_t index, Value& x, const nn::RopeTables& asking, const nn::RopeTables& all) const {
    const std::string name = "single_stream_blocks." + std::to_string(index) + ".block", attention = name + ".attn1";
    auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
    const std::vector<Value> mod = nn::modulation(g, activated, name + ".adaLN_modulation.1", 6);
    Value seen = g.concat({x, shown(dims.double_blocks + index)}, 1);
    nn::Qkv at = qkv(g, nn::modulated_norm(g, seen, mod[0], mod[1]), attention, "", g.shape(x)[1]);
    at.q = g.rope(at.q, asking.cos, asking.sin);
    at.k = g.rope(at.k, all.cos, all.sin);
    x = nn::gated(g, x, mod[2], g.linear(nn::self_attention(g, at), attention + ".to_out"));
    x = nn::gated(g, x, mod[5], experts(g, nn::modulated_norm(g, x, mod[3], mod[4]), name + ".ff_i"));
  }
};

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"];
  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch, places = rows * columns;
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value t5 = g.input("t5", {batch, sizes["t5_length"], dims.t5});
  Value llama = g.input("llama3", {batch, sizes["llama3_length"], dims.states() * dims.llama});
  Value pooled = g.input("pooled", {batch, dims.pooled});
  Value timestep = g.input("timestep", {batch}, LH_F32);

  Value vec = g.add(nn::timestep_embedder(g, timestep, 1000.0, "t_embedder.timestep_embedder", "linear_1", "linear_2"),
                    nn::embedder(g, pooled, "p_embedder.pooled_embedder", "linear_1", "linear_2"));
  const Builder builder{g, dims, g.silu(vec), llama};
  Value x = g.linear(nn::patchify_channel_last(g, latents, Dimensions::patch), "x_embedder.proj");  // [B, S, h]
  Value text = g.linear(t5, "caption_projection." + std::to_string(dims.blocks()) + ".linear");
  text = g.concat({text, builder.shown(dims.blocks() - 1)}, 1);
  const int64_t words = g.shape(text)[1], shown = g.shape(llama)[1];
  const auto positions = [&](int64_t behind) {
    return nn::video_positions(g, {1, rows, columns}, behind, {64, 32, 32}, theta);
  };
  const nn::RopeTables image = positions(0), asking = positions(words), all = positions(words + shown);
  for (int64_t i = 0; i < dims.double_blocks; ++i) builder.double_block(i, x, text, image);
  x = g.concat({x, text}, 1);
  for (int64_t i = 0; i < dims.single_blocks; ++i) builder.single_block(i, x, asking, all);

  const std::vector<Value> mod = nn::modulation(g, builder.activated, "final_layer.adaLN_modulation.1", 2);
  x = g.linear(nn::modulated_norm(g, g.slice(x, 1, 0, places), mod[0], mod[1]), "final_layer.linear");
  // The model gives data - noise.
  g.output("output", g.affine(nn::unpatchify_channel_last(g, x, height, width, Dimensions::patch), -1));
}

}  // namespace hidream
