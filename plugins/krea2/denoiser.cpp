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
//
// References to look at, of the image's size, are in front of it, the n-th, from 1, with n on the first axis. They go
// through the same layers, modulated as at timestep 0, and have no output. Isolated ones attend to each other alone:
// what they are does not depend on the noise, so that a program may keep their keys and values for all steps.
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
  Value seen = {};       // i32 [B]
  int64_t isolated = 0;  // so many tokens in front attend to each other alone
};

nn::Qkv tokens(Graph& g, const nn::Qkv& x, int64_t start, int64_t count) {
  return {g.slice(x.q, 1, start, count), g.slice(x.k, 1, start, count), g.slice(x.v, 1, start, count)};
}

Value attended(Graph& g, const nn::Qkv& qkv, const Reach& reach) {
  if (reach.isolated == 0) return nn::self_attention(g, qkv, reach.rope, reach.seen);
  const nn::Qkv all = nn::rotated(g, qkv, reach.rope);
  const nn::Qkv rest = tokens(g, all, reach.isolated, g.shape(all.q)[1] - reach.isolated);
  Value front = nn::self_attention(g, tokens(g, all, 0, reach.isolated));
  return g.concat({front, nn::self_attention(g, {rest.q, all.k, all.v}, {}, reach.seen)}, 1);
}

Value attention(Graph& g, const std::string& module, Value x, const Reach& reach) {
  const auto heads = [&](const char* linear) { return nn::split_heads(g, g.linear(x, module + linear), reach.head); };
  const nn::Qkv qkv = {norm(g, heads(".wq"), module + ".qknorm.qnorm"), norm(g, heads(".wk"), module + ".qknorm.knorm"),
                       heads(".wv")};
  Value y = attended(g, qkv, reach);
  return g.linear(g.mul(y, g.sigmoid(g.linear(x, module + ".gate"))), module + ".wo");
}

Value feed_forward(Graph& g, const std::string& module, Value x) {
  return g.linear(g.mul(g.silu(g.linear(x, module + ".gate")), g.linear(x, module + ".up")), module + ".down");
}

Value modulated(Graph& g, Value x, Value scale, Value shift) { return g.add(g.mul(x, g.affine(scale, 1, 1)), shift); }

// Tokens that are modulated alike, and by what.
struct Part {
  Value x;    // [B, S, h]
  Value mod;  // [B, 6h], of which each block has another table added
};

void block(Graph& g, const std::string& name, std::vector<Part>& parts, const Reach& reach) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  std::vector<std::vector<Value>> m;  // of each part scale, shift and gate of attention and of the mlp, [B, 1, h] each
  for (const Part& part : parts) {
    const lora_host::Dims d = g.shape(part.mod);
    Value own = g.add(part.mod, g.reshape(g.param(name + ".mod.lin"), {1, d[1]}));
    m.push_back(g.split(g.reshape(own, {d[0], 1, d[1]}), -1, std::vector<int64_t>(6, d[1] / 6)));
  }
  // One after the other through a layer of all tokens, and apart again.
  const auto branch = [&](const std::string& before, size_t first, const auto& layer) {
    std::vector<Value> ys;
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < parts.size(); ++i) {
      ys.push_back(modulated(g, norm(g, parts[i].x, name + before), m[i][first], m[i][first + 1]));
      lengths.push_back(g.shape(ys[i])[1]);
    }
    if (parts.size() == 1)
      ys = {layer(ys[0])};
    else
      ys = g.split(layer(g.concat(ys, 1)), 1, lengths);
    for (size_t i = 0; i < parts.size(); ++i) parts[i].x = nn::gated(g, parts[i].x, m[i][first + 2], ys[i]);
  };
  branch(".prenorm", 0, [&](Value y) { return attention(g, name + ".attn", y, reach); });
  branch(".postnorm", 3, [&](Value y) { return feed_forward(g, name + ".mlp", y); });
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

// Of references, the image and the text.
nn::RopeTables positions(Graph& g, int64_t head, int64_t references, int64_t rows, int64_t columns, int64_t text) {
  using Id = std::array<int64_t, 3>;
  std::vector<Id> ids;
  const auto picture = [&](int64_t number) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) ids.push_back({number, row, column});
  };
  for (int64_t n = 1; n <= references; ++n) picture(n);
  picture(0);
  ids.resize(ids.size() + static_cast<size_t>(text), Id{0, 0, 0});
  const int64_t part = head / 16;  // 4 + 6 + 6 of them: of heads of 128 the axes 32 + 48 + 48
  return nn::rope_tables(g, ids, Id{4 * part, 6 * part, 6 * part}, 1000.0);
}

// [B, h] and what blocks are modulated by, [B, 6h].
struct Time {
  Value t, mod;
};
Time time(Graph& g, Value timestep) {
  const int64_t sinusoid = g.weights().require("tmlp.0.weight")[1];
  Value t = nn::mlp(g, g.timestep_embedding(timestep, sinusoid, 10000.0, 1000.0), "tmlp.0", "tmlp.2");
  return {t, g.linear(g.gelu(t, "tanh"), "tproj.1")};
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const Editing& editing, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  const lora_host::Dims image{batch, height, width, dims.channels};
  Value latents = g.input("latents", image);
  Value text = g.input("text", {batch, length, dims.states * dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  Value timestep = g.input("timestep", {batch}, LH_F32);
  const auto patches = [&](Value x) { return nn::patchify_channel_first(g, x, Dimensions::patch); };
  std::vector<Value> references;  // the first is there wherever the model edits
  for (const char* name : {"reference", "reference_2", "reference_3"})
    if (editing.references && (references.empty() || sizes.has(name)))
      references.push_back(patches(g.input(name, image)));

  const int64_t rows = height / Dimensions::patch, columns = width / Dimensions::patch, places = rows * columns;
  const auto shown = static_cast<int64_t>(references.size());
  Value lengths = nn::mask_lengths(g, mask);
  Value c = fused_text(g, dims, text, g.cast(lengths, LH_I32));
  const Time now = time(g, timestep);
  std::vector<Part> parts{{g.concat({g.linear(patches(latents), "first"), c}, 1), now.mod}};
  if (shown > 0) {
    const Time clean = time(g, g.constant({batch}, std::vector<float>(static_cast<size_t>(batch), 0)));
    Value x = g.linear(shown == 1 ? references[0] : g.concat(references, 1), "first");
    parts.insert(parts.begin(), {x, clean.mod});
  }
  const double pictures = static_cast<double>((shown + 1) * places);
  const Reach reach = {.head = dims.head,
                       .rope = positions(g, dims.head, shown, rows, columns, length),
                       .seen = g.cast(g.affine(lengths, 1, pictures), LH_I32),
                       .isolated = editing.isolated ? shown * places : 0};
  for (int64_t i = 0; i < dims.blocks; ++i) block(g, "blocks." + std::to_string(i), parts, reach);
  Value x = parts.back().x;

  Value table = g.reshape(g.param("last.modulation.lin"), {1, 2, dims.hidden});
  Value last = g.add(g.expand(g.reshape(now.t, {batch, 1, dims.hidden}), {batch, 2, dims.hidden}), table);
  x = norm(g, g.slice(x, 1, 0, places), "last.norm");
  x = modulated(g, x, g.slice(last, 1, 0, 1), g.slice(last, 1, 1, 1));
  x = g.linear(x, "last.linear");
  g.output("output", nn::unpatchify_channel_first(g, x, height, width, Dimensions::patch));
}

}  // namespace krea2
