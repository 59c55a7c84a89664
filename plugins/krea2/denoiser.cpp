// The graph of the Krea 2 transformer.
//
//   t = tmlp(1000 sigma) [B, h];  m = tproj.1(gelu t) [B, 6h]
//   c = text: blocks over the states of each token, which a linear (txtfusion.projector) then makes one of, blocks over
//       the tokens, txtmlp
//   blocks over first(patches) and c as one sequence, modulated by m plus a table of the block's own
//   velocity = patches of last.linear((1 + scale) norm(x) + shift), (scale, shift) = t plus a table
//
// A block: x += attention(norm(x)), x += down(silu(gate y) * up y), y = norm(x); of modulated ones both norms are
// scaled and shifted, and what is added has a gate. Keys and values have fewer heads than queries; attention's result
// is multiplied by sigmoid(gate(x)) before its last linear. Norms are RMS with eps 1e-5 and multiply by 1 + weight.
//
// Patch (row, column) stands at (0, row, column), and all of the text at (0, 0, 0): its order in the sequence is free.
// It is behind the image, so that what is not there is the end of the keys.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace krea2 {

namespace nn = lora_host::nn;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-5;

Value norm(Graph& g, Value x, const std::string& module) {
  return g.rms_norm(x, eps, g.affine(g.cast(g.param(module + ".scale"), LH_F32), 1, 1));
}

// How the tokens of a block attend: heads of `head`, rotated where there are tables, to the first `seen` keys or all.
struct Reach {
  int64_t head;
  nn::RopeTables rope = {};
  Value seen = {};  // i32 [B]
};

Value attention(Graph& g, const std::string& module, Value x, const Reach& reach) {
  const auto heads = [&](const char* linear) { return nn::split_heads(g, g.linear(x, module + linear), reach.head); };
  const nn::Qkv qkv = {norm(g, heads(".wq"), module + ".qknorm.qnorm"), norm(g, heads(".wk"), module + ".qknorm.knorm"),
                       heads(".wv")};
  Value y = nn::self_attention(g, qkv, reach.rope, reach.seen);
  return g.linear(g.mul(y, g.sigmoid(g.linear(x, module + ".gate"))), module + ".wo");
}

Value feed_forward(Graph& g, const std::string& module, Value x) {
  return g.linear(g.mul(g.silu(g.linear(x, module + ".gate")), g.linear(x, module + ".up")), module + ".down");
}

Value modulated(Graph& g, Value x, Value scale, Value shift) { return g.add(g.mul(x, g.affine(scale, 1, 1)), shift); }

// mod [B, 6h], of which each block has another table added.
Value block(Graph& g, const std::string& name, Value x, Value mod, const Reach& reach) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const lora_host::Dims d = g.shape(mod);
  Value own = g.add(mod, g.reshape(g.param(name + ".mod.lin"), {1, d[1]}));
  // Scale, shift and gate of attention and of the mlp, [B, 1, h] each.
  const std::vector<Value> m = g.split(g.reshape(own, {d[0], 1, d[1]}), -1, std::vector<int64_t>(6, d[1] / 6));
  Value y = modulated(g, norm(g, x, name + ".prenorm"), m[0], m[1]);
  x = nn::gated(g, x, m[2], attention(g, name + ".attn", y, reach));
  y = modulated(g, norm(g, x, name + ".postnorm"), m[3], m[4]);
  return nn::gated(g, x, m[5], feed_forward(g, name + ".mlp", y));
}

Value text_block(Graph& g, const std::string& name, Value x, const Reach& reach) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  x = g.add(x, attention(g, name + ".attn", norm(g, x, name + ".prenorm"), reach));
  return g.add(x, feed_forward(g, name + ".mlp", norm(g, x, name + ".postnorm")));
}

// text [B, L, states * d], of which the first `lengths` rows are there -> [B, L, h]
Value fused_text(Graph& g, const Dimensions& dims, Value text, Value lengths) {
  const lora_host::Dims d = g.shape(text);
  Value x = g.reshape(text, {d[0] * d[1], dims.states, dims.text});
  for (int64_t i = 0; i < dims.layerwise; ++i)
    x = text_block(g, "txtfusion.layerwise_blocks." + std::to_string(i), x, {.head = dims.text_head});
  x = g.permute(g.reshape(x, {d[0], d[1], dims.states, dims.text}), {0, 1, 3, 2});
  x = g.reshape(g.linear(x, "txtfusion.projector"), {d[0], d[1], dims.text});
  for (int64_t i = 0; i < dims.refiners; ++i)
    x = text_block(g, "txtfusion.refiner_blocks." + std::to_string(i), x, {.head = dims.text_head, .seen = lengths});
  return nn::mlp(g, norm(g, x, "txtmlp.0"), "txtmlp.1", "txtmlp.3");
}

nn::RopeTables positions(Graph& g, int64_t head, int64_t rows, int64_t columns, int64_t text) {
  using Id = std::array<int64_t, 3>;
  std::vector<Id> ids;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) ids.push_back({0, row, column});
  ids.resize(ids.size() + static_cast<size_t>(text), Id{0, 0, 0});
  const int64_t part = head / 16;  // 4 + 6 + 6 of them: of heads of 128 the axes 32 + 48 + 48
  return nn::rope_tables(g, ids, Id{4 * part, 6 * part, 6 * part}, 1000.0);
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.states * dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);

  const int64_t sinusoid = g.weights().require("tmlp.0.weight", {dims.hidden, -1})[1];
  Value t = nn::mlp(g, g.timestep_embedding(timestep, sinusoid, 10000.0, 1000.0), "tmlp.0", "tmlp.2");
  Value mod = g.linear(g.gelu(t, "tanh"), "tproj.1");
  Value lengths = nn::mask_lengths(g, mask);
  Value c = fused_text(g, dims, text, g.cast(lengths, LH_I32));
  Value x = g.concat({g.linear(nn::patchify_channel_first(g, latents, Dimensions::patch), "first"), c}, 1);

  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch;
  const Reach reach = {.head = dims.head,
                       .rope = positions(g, dims.head, rows, columns, length),
                       .seen = g.cast(g.affine(lengths, 1, static_cast<double>(rows * columns)), LH_I32)};
  for (int64_t i = 0; i < dims.blocks; ++i) x = block(g, "blocks." + std::to_string(i), x, mod, reach);

  Value table = g.reshape(g.param("last.modulation.lin"), {1, 2, dims.hidden});
  Value last = g.add(g.expand(g.reshape(t, {batch, 1, dims.hidden}), {batch, 2, dims.hidden}), table);
  x = norm(g, g.slice(x, 1, 0, rows * columns), "last.norm");
  x = modulated(g, x, g.slice(last, 1, 0, 1), g.slice(last, 1, 1, 1));
  x = g.linear(x, "last.linear");
  g.output("output", nn::unpatchify_channel_first(g, x, height, width, Dimensions::patch));
}

}  // namespace krea2
