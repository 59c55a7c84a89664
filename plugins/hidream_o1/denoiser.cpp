// The graph of the transformer.
//
//   tokens: x_embedder(patches of x_t), then t = t_embedder1(1 - sigma), then the prompt
//   layers, in which tokens of the prompt see those of it that are not behind them, patches and t see all
//   x0 = final_layer2(norm(patches)), the picture; output (x_t - x0) / max(sigma, 0.001)
//
// The model's own programs have the prompt in front, t behind it and then the patches; here pads, which nothing sees,
// come last. Positions have three axes: a token of the prompt, and t behind them, counts on all of them, and a patch is
// at 4096 and, from there on, at its row and column.
#include "denoiser.h"

#include <cmath>
#include <string>
#include <vector>

#include "nn/mmdit.hpp"
#include "nn/velocity.hpp"

namespace hidream_o1 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr int64_t first_patch = 4096;
constexpr double least_sigma = 1e-3;

// What attention has besides q, k and v.
struct Sequence {
  int64_t patches, text;
  Value text_lengths, lengths;  // i32 [B]: tokens of the prompt, and of the whole, that are there
  nn::RopeTables rope;          // f32 [B, patches + 1 + text, head_dim / 2]
};

// Frequencies turn by the axes in turn, of which the first, for patches the same everywhere, has all from 60 on.
nn::RopeTables patch_rope(Graph& g, int64_t rows, int64_t columns, const std::vector<double>& frequencies) {
  constexpr size_t shared = 60;
  nn::RopeAngles angles;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      for (size_t k = 0; k < frequencies.size(); ++k) {
        const int64_t along = k >= shared || k % 3 == 0 ? 0 : k % 3 == 1 ? row : column;
        angles.add(static_cast<double>(first_patch + along) * frequencies[k]);
      }
  return angles.tables(g, {rows * columns, static_cast<int64_t>(frequencies.size())});
}

Sequence sequence(Graph& g, Value text_mask, int64_t rows, int64_t columns) {
  const Dims d = g.shape(text_mask);
  const int64_t batch = d[0], text = d[1], patches = rows * columns;
  const std::vector<double> frequencies = nn::rope_frequencies(Dimensions::head_dim, Dimensions::rope_theta);
  const auto half = static_cast<int64_t>(frequencies.size());
  Value there = nn::mask_lengths(g, text_mask);
  Sequence s{patches,
             text,
             g.cast(g.clamp(there, 0, static_cast<double>(text)), LH_I32),
             g.cast(g.affine(there, 1, static_cast<double>(patches + 1)), LH_I32),
             {{}, {}, false}};
  const nn::RopeTables picture = patch_rope(g, rows, columns, frequencies),
                       counted = nn::rope_tables(g, text + 1, frequencies);
  for (Value nn::RopeTables::*part : {&nn::RopeTables::cos, &nn::RopeTables::sin}) {
    Value all = nn::spread(g, counted.*part, batch, text + 1);
    Value time = g.reshape(g.gather(all, s.text_lengths), {batch, 1, half});
    s.rope.*part = g.concat({nn::spread(g, picture.*part, batch, patches), time, g.slice(all, 1, 0, text)}, 1);
  }
  return s;
}

// What attends, and what is seen: [B, rows, heads, head_dim] each.
struct Heads {
  Value q, k, v;
};

Value attention(Graph& g, const std::string& module, Value x, const Sequence& s, bool patches_alone) {
  const int64_t seeing = patches_alone ? s.patches : s.patches + 1, all = s.patches + 1 + s.text;
  const auto turned = [&](Value rows, const char* part, int64_t count) {
    Value heads = nn::split_heads(g, g.linear(rows, module + "." + part + "_proj"), Dimensions::head_dim);
    const nn::RopeTables rope = count == all ? s.rope : nn::rope_rows(g, s.rope, 0, count);
    return g.rope(g.rms_norm(heads, module + "." + part + "_norm", Dimensions::eps), rope.cos, rope.sin, false);
  };
  const auto attend = [&](const Heads& of, Value lengths, bool causal) {
    const double scale = 1 / std::sqrt(static_cast<double>(Dimensions::head_dim));
    return g.attention(of.q, of.k, of.v, scale, {}, lengths, {}, causal);
  };
  Heads heads;
  heads.q = turned(patches_alone ? g.slice(x, 1, 0, seeing) : x, "q", patches_alone ? seeing : all);
  heads.k = turned(x, "k", all);
  heads.v = nn::split_heads(g, g.linear(x, module + ".v_proj"), Dimensions::head_dim);
  Value y;
  if (patches_alone) {
    y = attend(heads, s.lengths, false);
  } else {
    const auto of_text = [&](Value rows) { return g.slice(rows, 1, seeing, s.text); };
    Value picture = attend({g.slice(heads.q, 1, 0, seeing), heads.k, heads.v}, s.lengths, false);
    Value text = attend({of_text(heads.q), of_text(heads.k), of_text(heads.v)}, s.text_lengths, true);
    y = g.concat({picture, text}, 1);
  }
  return g.linear(nn::merge_heads(g, y), module + ".o_proj");
}

// Behind the last layer nobody reads any other token than the patches.
Value layer(Graph& g, const std::string& name, Value x, const Sequence& s, bool last) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  Value y = attention(g, name + ".self_attn", g.rms_norm(x, name + ".input_layernorm", Dimensions::eps), s, last);
  x = g.add(last ? g.slice(x, 1, 0, s.patches) : x, y);
  y = g.rms_norm(x, name + ".post_attention_layernorm", Dimensions::eps);
  Value gated = g.mul(g.silu(g.linear(y, name + ".mlp.gate_proj")), g.linear(y, name + ".mlp.up_proj"));
  return g.add(x, g.linear(gated, name + ".mlp.down_proj"));
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], given = sizes["text_length"];
  Value noisy = g.input("latents", {batch, height, width, 3}, LH_F32);
  Value text = g.input("text", {batch, given, dims.hidden});
  Value text_mask = g.input("text_mask", {batch, given}, LH_I32);
  Value sigma = g.input("timestep", {batch}, LH_F32);

  const Sequence s = sequence(g, text_mask, height / Dimensions::patch, width / Dimensions::patch);
  Value patches = nn::patchify_channel_first(g, g.cast(noisy, LH_FLOAT), Dimensions::patch);
  patches = g.linear(g.linear(patches, "x_embedder.proj1"), "x_embedder.proj2");
  Value time = nn::timestep_embedder(g, g.affine(sigma, -1, 1), 1000.0, "t_embedder1", "mlp.0", "mlp.2");
  Value x = g.concat({patches, g.reshape(time, {batch, 1, dims.hidden}), text}, 1);
  for (int64_t i = 0; i < dims.layers; ++i)
    x = layer(g, "language_model.layers." + std::to_string(i), x, s, i + 1 == dims.layers);
  x = g.linear(g.rms_norm(x, "language_model.norm", Dimensions::eps), "final_layer2.linear");
  Value picture = nn::unpatchify_channel_first(g, x, height, width, Dimensions::patch);
  g.output("output", nn::velocity(g, noisy, picture, g.clamp(sigma, least_sigma, 1)));
}

}  // namespace hidream_o1
