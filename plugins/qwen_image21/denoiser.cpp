// The graph of the Qwen-Image 2.1 transformer: one stream of text and image, in which the text does not see the image.
//
//   t = timestep_embedder(1000 sigma);  scale, gate, scale, gate = modulation.1(silu t), the same in all blocks [B, h]
//   x = txt_in(text), img_in(latents); then in each block
//   x += tanh(gate) attention((1 + scale) norm(x));  x += tanh(gate) mlp((1 + scale) norm(x))
//   velocity = proj_out((1 + norm_out.linear(silu t)) norm(image))
//
// The text is modulated as at sigma 0, and each of its tokens sees those before it; the image sees the text and itself.
// So what the text is does not depend on the noise. In the sequence the text is behind the image, so that what is not
// there is the end of the keys.
//
// Positions have three axes. Token j of a text of n stands at (j, j, j), and patch (row, column) of h x w behind it at
// (n, row - ceil(h / 2), column - ceil(w / 2)): each sample counts its own tokens, as in a batch of one.
#include "denoiser.h"

#include "nn/mmdit.hpp"

namespace qwen_image21 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

namespace {

constexpr double eps = 1e-6;

// Tables [B, rows columns + length, 64] of image and text, whose lengths are i32 [B].
nn::RopeTables positions(Graph& g, Value lengths, int64_t rows, int64_t columns, int64_t length) {
  const std::vector<double> first = nn::rope_frequencies(16, 10000.0), other = nn::rope_frequencies(56, 10000.0);
  nn::RopeAngles starts, grid, tokens;
  for (int64_t n = 0; n <= length; ++n) starts.add(n, first);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      grid.add(row - (rows + 1) / 2, other);
      grid.add(column - (columns + 1) / 2, other);
    }
  for (int64_t token = 0; token < length; ++token)
    for (const auto& frequencies : {first, other, other}) tokens.add(token, frequencies);
  const int64_t places = rows * columns, half = Dimensions::head_dim / 2;
  return nn::image_behind_text(g, starts.tables(g, {1, length + 1, 8}), grid.tables(g, {places, half - 8}),
                               tokens.tables(g, {length, half}), lengths)
      .all;
}

// Tokens of image and text [B, ., h], or numbers that each of them is modulated by.
template <class T>
struct Parts {
  T image, text;
};

class Blocks {
 public:
  // mod: scale, gate, scale, gate, [B, 1, h] each; seen i32 [B]: keys that are there.
  Blocks(Graph& g, const Dimensions& dims, Parts<std::vector<Value>> mod, const nn::RopeTables& rope, Value seen)
      : g_(g), dims_(dims), mod_(std::move(mod)), rope_(rope), seen_(seen) {
    const Dims d = g.shape(mod_.image[0]);
    // There is no shift. With one of zero, norm and scale are one kernel.
    zero_ = g.cast(g.constant(d, std::vector<float>(static_cast<size_t>(d[0] * d[2]))), LH_FLOAT);
  }

  // The text behind the last block is not looked at, so there it is seen alone.
  Parts<Value> operator()(const std::string& name, Parts<Value> x, bool last) const {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    const std::vector<int64_t> tokens = {g_.shape(x.image)[1], g_.shape(x.text)[1]};
    const Parts<Value> seen = attention(name + ".attn.", modulated(x, 0), tokens, last);
    x = gated(x, 1, name + ".attn.to_out.0", seen.text ? g_.concat({seen.image, seen.text}, 1) : seen.image);
    if (last) x.text = {};
    Value y = g_.linear(modulated(x, 2), name + ".img_mlp.gate_up");
    const std::vector<Value> halves = g_.split(y, -1, {dims_.inner, dims_.inner});
    return gated(x, 3, name + ".img_mlp.out", g_.mul(g_.silu(halves[0]), halves[1]));
  }

 private:
  // (1 + scale) norm(x) of both, one after the other.
  Value modulated(const Parts<Value>& x, size_t scale) const {
    Value image = nn::modulated_norm(g_, x.image, zero_, mod_.image[scale], eps);
    return x.text ? g_.concat({image, nn::modulated_norm(g_, x.text, zero_, mod_.text[scale], eps)}, 1) : image;
  }

  // x + tanh(gate) linear(y), of the tokens of y
  Parts<Value> gated(const Parts<Value>& x, size_t gate, const std::string& linear, Value y) const {
    const int64_t image = g_.shape(x.image)[1], all = g_.shape(y)[1];
    y = g_.linear(y, linear);
    if (all == image) return {nn::held(g_, nn::gated(g_, x.image, mod_.image[gate], y)), x.text};
    const std::vector<Value> ys = g_.split(y, 1, {image, all - image});
    return {nn::held(g_, nn::gated(g_, x.image, mod_.image[gate], ys[0])),
            nn::held(g_, nn::gated(g_, x.text, mod_.text[gate], ys[1]))};
  }

  Parts<Value> attention(const std::string& attn, Value y, const std::vector<int64_t>& tokens, bool last) const {
    nn::Qkv all = nn::heads(g_, g_.linear(y, attn + "to_q"), g_.linear(y, attn + "to_k"), g_.linear(y, attn + "to_v"),
                            Dimensions::head_dim, attn + "norm_q.weight", attn + "norm_k.weight", eps);
    all = nn::rotated(g_, all, rope_);
    const double scale = 1.0 / std::sqrt(static_cast<double>(Dimensions::head_dim));
    const std::vector<Value> q = last ? std::vector{g_.slice(all.q, 1, 0, tokens[0])} : g_.split(all.q, 1, tokens);
    Parts<Value> out{nn::merge_heads(g_, g_.attention(q[0], all.k, all.v, scale, {}, seen_)), {}};
    if (last) return out;
    Value k = g_.slice(all.k, 1, tokens[0], tokens[1]), v = g_.slice(all.v, 1, tokens[0], tokens[1]);
    out.text = nn::merge_heads(g_, g_.attention(q[1], k, v, scale, {}, {}, {}, true));
    return out;
  }

  Graph& g_;
  const Dimensions& dims_;
  Parts<std::vector<Value>> mod_;
  nn::RopeTables rope_;
  Value seen_, zero_;
};

Value text_tokens(Graph& g, Value text) {
  Value weight = g.affine(g.cast(g.param("txt_in.text_norm.weight"), LH_F32), 1, 1);  // stored less 1
  Value y = g.linear(g.rms_norm(text, eps, weight), "txt_in.in_layer");
  return g.linear(g.gelu(y, "tanh"), "txt_in.out_layer");
}

}  // namespace

void build_denoiser(Graph& g, const Dimensions& dims, const lora_host::Sizes& sizes) {
  const int64_t batch = sizes["batch"], height = sizes["height"], width = sizes["width"], length = sizes["text_length"];
  const int64_t places = height * width;
  Value latents = g.input("latents", {batch, height, width, dims.channels});
  Value text = g.input("text", {batch, length, dims.text});
  Value mask = g.input("text_mask", {batch, length}, LH_I32);
  // Whatever a mask holds, it is a row of a table below.
  Value lengths = g.clamp(nn::mask_lengths(g, mask), 0, static_cast<double>(length));
  Value timestep = g.input("timestep", {batch}, LH_F32);

  // Of the image, then of the text.
  Value times = g.concat({timestep, g.constant({batch}, std::vector<float>(static_cast<size_t>(batch)))}, 0);
  Value t =
      g.silu(nn::timestep_embedder(g, times, 1000.0, "time_text_embed.timestep_embedder", "linear_1", "linear_2"));
  const std::vector<Value> mods = g.split(g.linear(t, "modulation.1"), 0, {batch, batch});
  Parts<std::vector<Value>> mod{nn::modulation_pieces(g, mods[0], 4), nn::modulation_pieces(g, mods[1], 4)};
  for (std::vector<Value>* pieces : {&mod.image, &mod.text})
    for (size_t gate : {1, 3}) (*pieces)[gate] = g.tanh((*pieces)[gate]);

  Parts<Value> x{g.linear(g.reshape(latents, {batch, places, dims.channels}), "img_in"), text_tokens(g, text)};
  const nn::RopeTables rope = positions(g, g.cast(lengths, LH_I32), height, width, length);
  Value seen = g.cast(g.affine(lengths, 1, static_cast<double>(places)), LH_I32);
  const Blocks blocks(g, dims, std::move(mod), rope, seen);
  for (int64_t i = 0; i < dims.blocks; ++i)
    x = blocks("transformer_blocks." + std::to_string(i), x, i + 1 == dims.blocks);

  Value scale = nn::modulation(g, g.slice(t, 0, 0, batch), "norm_out.linear", 1)[0];
  Value out = g.linear(g.mul(g.layer_norm(x.image, eps), g.affine(scale, 1, 1)), "proj_out");
  g.output("output", g.reshape(out, {batch, height, width, dims.channels}));
}

}  // namespace qwen_image21
