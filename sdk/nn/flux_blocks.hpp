// The transformer of Flux.1 and of models that grew out of it, by the names of the original files.
//
//   double blocks: text and image tokens with weights of their own, one attention over both
//   single blocks: one sequence; attention and mlp side by side
//   final layer:   modulated norm and a linear back to 2x2 patches
//
// What a model makes its modulation of is its own: it gives the vectors when a block asks for them. Rotary ids: text
// (0, 0, 0), image (0, row, column). A model may be given further images to look at: their tokens stand behind those of
// the image, with ids (n, row, column) of the n-th, and go through the same weights.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "nn/mmdit.hpp"

namespace lora_host::nn {

struct FluxDimensions {
  static constexpr int64_t head_dim = 128;  // rotary axes 16 + 56 + 56
  static constexpr int64_t patch = 2;
  int64_t hidden = 0;         // heads * 128
  int64_t channels = 0;       // of the latents
  int64_t text = 0;           // width of the text states
  int64_t double_blocks = 0;  // text and image with weights of their own
  int64_t single_blocks = 0;  // one sequence
};

// Name of the RMS scale of a norm; files of some tools call it .weight.
inline std::string flux_norm(const Weights& w, const std::string& norm) {
  return norm + (w.has(norm + ".weight") ? ".weight" : ".scale");
}

inline void require_flux_double(const Weights& w, const std::string& side, int64_t h) {  // "double_blocks.3.img"
  int64_t inner = w.require(side + "_mlp.0.weight", {-1, h})[0];
  w.require_linear(side + "_attn.qkv", 3 * h, h);
  w.require_linear(side + "_attn.proj", h, h);
  w.require_linear(side + "_mlp.0", inner, h);
  w.require_linear(side + "_mlp.2", h, inner);
  for (const char* norm : {"_attn.norm.query_norm", "_attn.norm.key_norm"})
    w.require(flux_norm(w, side + norm), {FluxDimensions::head_dim});
}

inline void require_flux_single(const Weights& w, const std::string& block, int64_t h) {
  int64_t wide = w.require(block + ".linear1.weight", {-1, h})[0];
  if (wide <= 3 * h)
    throw Failure(LH_E_MODEL, block + ".linear1.weight: expected more than " + std::to_string(3 * h) +
                                  " rows (q, k, v and the mlp), found " + std::to_string(wide));
  w.require_linear(block + ".linear1", wide, h);
  w.require_linear(block + ".linear2", h, wide - 2 * h);
  for (const char* norm : {".norm.query_norm", ".norm.key_norm"})
    w.require(flux_norm(w, block + norm), {FluxDimensions::head_dim});
}

// Throws where heads do not divide the width h, which is the number of rows of a tensor of that name.
inline void require_flux_heads(const std::string& name, int64_t h) {
  if (h % FluxDimensions::head_dim != 0)
    throw Failure(LH_E_MODEL, name + ": expected a multiple of 128 rows (heads of 128), found " + std::to_string(h));
}

// Of the blocks and the text's way in, but for their modulation, where the width is h.
inline FluxDimensions read_flux_blocks(const Weights& w, int64_t h) {
  FluxDimensions dims{.hidden = h,
                      .text = w.require("txt_in.weight", {h, -1})[1],
                      .double_blocks = w.count("double_blocks.", ".img_attn.qkv.weight"),
                      .single_blocks = w.count("single_blocks.", ".linear1.weight")};
  w.require_linear("txt_in", h, dims.text);
  for (int64_t i = 0; i < std::max<int64_t>(dims.double_blocks, 1); ++i)
    for (const char* side : {".img", ".txt"}) require_flux_double(w, "double_blocks." + std::to_string(i) + side, h);
  for (int64_t i = 0; i < std::max<int64_t>(dims.single_blocks, 1); ++i)
    require_flux_single(w, "single_blocks." + std::to_string(i), h);
  return dims;
}

// Reads them from all that is not modulation, and throws where a tensor of that is missing or of another shape. beside:
// what the model is given of each place beside its latents, in channels as those are.
inline FluxDimensions read_flux_dimensions(const Weights& w, int64_t beside = 0) {
  constexpr int64_t patch = FluxDimensions::patch;
  Dims in = w.require("img_in.weight", {-1, -1});
  int64_t h = in[0], out = w.require("final_layer.linear.weight", {-1, h})[0];
  require_flux_heads("img_in.weight", h);
  const int64_t columns = out + beside * patch * patch;
  if (in[1] != columns)
    throw Failure(LH_E_MODEL, "img_in.weight: expected shape " + dims_text({h, columns}) + ", found " + dims_text(in) +
                                  "; inpainting and control variants take further channels");
  w.require_linear("img_in", h, columns);
  FluxDimensions dims = read_flux_blocks(w, h);
  dims.channels = out / (patch * patch);
  w.require_linear("final_layer.linear", out, h);
  return dims;
}

// What is modulated: a stream of a double block, a single block, the final layer.
struct FluxPart {
  enum Kind { image, text, single, last } kind;
  int64_t block = 0;

  std::string name() const {  // "double_blocks.3.img"
    if (kind == last) return "final_layer";
    if (kind == single) return "single_blocks." + std::to_string(block);
    return "double_blocks." + std::to_string(block) + (kind == image ? ".img" : ".txt");
  }
  // The linear that makes its modulation, where each part has one.
  std::string linear() const {
    return name() + (kind == last ? ".adaLN_modulation.1" : kind == single ? ".modulation.lin" : "_mod.lin");
  }
  // shift, scale, gate of the attention, and of the mlp; shift, scale, gate; shift, scale
  int64_t vectors() const { return kind == last ? 2 : kind == single ? 3 : 6; }
};

// Vectors [B, 1, h] for a part. Called inside the scope of its block.
using FluxModulation = std::function<std::vector<Value>(const FluxPart&)>;

// Throws where a linear of these is missing or of another shape.
inline void require_flux_modulations(const Weights& w, const FluxDimensions& dims) {
  const auto require = [&](const FluxPart& part) {
    w.require_linear(part.linear(), part.vectors() * dims.hidden, dims.hidden);
  };
  for (int64_t i = 0; i < dims.double_blocks; ++i)
    for (FluxPart::Kind stream : {FluxPart::image, FluxPart::text}) require({stream, i});
  for (int64_t i = 0; i < dims.single_blocks; ++i) require({FluxPart::single, i});
  require({FluxPart::last});
}

class FluxTransformer {
 public:
  // text_lengths f32 [B]: only that many of a sample's text tokens are seen; empty: all. Text that is cut short stands
  // behind the image, so that what is not seen is the end of the keys, which costs nothing.
  FluxTransformer(Graph& g, const FluxDimensions& dims, FluxModulation modulation, Value text_lengths = {})
      : g_(g), dims_(dims), modulation_(std::move(modulation)), text_lengths_(text_lengths) {}

  // latents [B, H, W, C] with whatever is given beside them, text [B, L, D], further images [B, h, w, C] each
  // -> [B, H, W, C]
  Value operator()(Value latents, Value text, const std::vector<Value>& further = {}) {
    Dims d = g_.shape(latents);
    constexpr int64_t patch = FluxDimensions::patch;
    std::vector<Value> patches{patchify_channel_first(g_, latents, patch)};  // [B, S, 4C]
    for (Value image : further) patches.push_back(patchify_channel_first(g_, image, patch));
    const int64_t places = g_.shape(patches[0])[1];
    Value img = g_.linear(further.empty() ? patches[0] : g_.concat(patches, 1), "img_in");  // [B, all S, h]
    Value txt = g_.linear(text, "txt_in");                                                  // [B, L, h]
    std::vector<std::array<int64_t, 2>> grids{{d[1] / patch, d[2] / patch}};
    for (Value image : further) {
      const Dims of = g_.shape(image);
      grids.push_back({of[1] / patch, of[2] / patch});
    }
    const RopeTables rope = positions(g_.shape(txt)[1], grids);
    return unpatchify_channel_first(g_, between(img, txt, rope, places), d[1], d[2], patch);
  }

  // Of all tokens: those of images of so many rows and columns, and the text's, which stand behind them where it has
  // lengths and in front elsewhere.
  RopeTables positions(int64_t text, const std::vector<std::array<int64_t, 2>>& images) const {
    using Id = std::array<int64_t, 3>;
    std::vector<Id> ids;
    for (size_t i = 0; i < images.size(); ++i)
      for (int64_t row = 0; row < images[i][0]; ++row)
        for (int64_t column = 0; column < images[i][1]; ++column) ids.push_back({static_cast<int64_t>(i), row, column});
    ids.insert(text_last() ? ids.end() : ids.begin(), static_cast<size_t>(text), Id{0, 0, 0});
    return rope_tables(g_, ids, Id{16, 56, 56}, 10000.0);
  }

  // Blocks and final layer. img [B, S, h], txt [B, L, h], positions of all tokens -> [B, places, rows of
  // final_layer.linear] of the image's first ones.
  Value between(Value img, Value txt, const RopeTables& rope, int64_t places) {
    Value x = blocks(img, txt, rope, places);
    std::vector<Value> mod = modulation_({FluxPart::last});
    return g_.linear(modulated_norm(g_, x, mod[0], mod[1]), "final_layer.linear");
  }

  // The blocks alone -> [B, places, h]
  Value blocks(Value img, Value txt, const RopeTables& rope, int64_t places) {
    const int64_t image = g_.shape(img)[1], text = g_.shape(txt)[1];
    if (text_last()) seen_ = g_.cast(g_.affine(text_lengths_, 1.0, static_cast<double>(image)), LH_I32);
    rope_ = rope;
    of_streams_ = joint_rope(g_, rope_, text_last() ? image : text);
    for (int64_t i = 0; i < dims_.double_blocks; ++i) double_block(i, img, txt);
    Value x = img;
    if (dims_.single_blocks > 0) {
      x = g_.concat(in_order(img, txt), 1);
      for (int64_t i = 0; i < dims_.single_blocks; ++i) x = single_block({FluxPart::single, i}, x);
      x = g_.slice(x, 1, text_last() ? 0 : text, places);
    }
    return x;
  }

 private:
  bool text_last() const { return static_cast<bool>(text_lengths_); }
  std::vector<Value> in_order(Value img, Value txt) const {
    return text_last() ? std::vector{img, txt} : std::vector{txt, img};
  }

  std::string norm(const std::string& name) const { return flux_norm(g_.weights(), name); }

  JointStream stream(const std::string& name, Value x) const {
    return JointStream(g_,
                       {.modulation = {},
                        .qkv = name + "_attn.qkv",
                        .q_norm = norm(name + "_attn.norm.query_norm"),
                        .k_norm = norm(name + "_attn.norm.key_norm"),
                        .proj = name + "_attn.proj",
                        .fc1 = name + "_mlp.0",
                        .fc2 = name + "_mlp.2"},
                       x);
  }

  void double_block(int64_t block, Value& img, Value& txt) {
    auto scope = g_.scope("double_blocks." + std::to_string(block), LH_SCOPE_CHECKPOINT);
    const FluxPart image_part{FluxPart::image, block}, text_part{FluxPart::text, block};
    JointStream image = stream(image_part.name(), img), text = stream(text_part.name(), txt);
    Qkv image_qkv = image.qkv(modulation_(image_part), FluxDimensions::head_dim);
    Qkv text_qkv = text.qkv(modulation_(text_part), FluxDimensions::head_dim);
    if (text_last()) {
      // What comes of the text in the very last block nobody needs.
      const bool last = dims_.single_blocks == 0 && block + 1 == dims_.double_blocks;
      if (last) text_qkv.q = {};
      JointAttention attention = joint_attention(g_, image_qkv, text_qkv, of_streams_, seen_);
      image.attend(attention.first);
      if (last) {
        image.feed_forward();
        img = image.x();
        return;
      }
      text.attend(attention.second);
    } else {
      JointAttention attention = joint_attention(g_, text_qkv, image_qkv, of_streams_);
      image.attend(attention.second);
      text.attend(attention.first);
    }
    image.feed_forward();
    text.feed_forward();
    img = image.x();
    txt = text.x();
  }

  Value single_block(const FluxPart& part, Value x) {
    const std::string block = part.name();
    auto scope = g_.scope(block, LH_SCOPE_CHECKPOINT);
    std::vector<Value> mod = modulation_(part);
    Value wide = g_.linear(modulated_norm(g_, x, mod[0], mod[1]), block + ".linear1");  // [B, S, 3h + mlp]
    int64_t h = dims_.hidden;
    std::vector<Value> parts = g_.split(wide, -1, {h, h, h, g_.shape(wide)[2] - 3 * h});
    Qkv qkv = heads(g_, parts[0], parts[1], parts[2], FluxDimensions::head_dim, norm(block + ".norm.query_norm"),
                    norm(block + ".norm.key_norm"));
    Value attention = self_attention(g_, qkv, rope_, seen_);
    Value y = g_.linear(g_.concat({attention, g_.gelu(parts[3], "tanh")}, -1), block + ".linear2");
    return gated(g_, x, mod[2], y);
  }

  Graph& g_;
  FluxDimensions dims_;
  FluxModulation modulation_;
  Value text_lengths_, seen_;  // seen_ i32 [B]: keys
  RopeTables rope_;
  JointRope of_streams_;
};

}  // namespace lora_host::nn
