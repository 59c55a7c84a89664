// The convolutional UNet of latent diffusion under its original (LDM) names: latents [N, H, W, C] -> [N, H, W, C'].
//
//   input_blocks.0.0 (convolution), then blocks of: res block, spatial transformer, downsample; every result is kept
//   middle_block: res block, spatial transformer, res block
//   output_blocks: each joins its input with the last result kept, then res block, spatial transformer, upsample
//   out: group norm, silu, convolution
//
// A model of this family is told by its keys alone: which module stands at which place, depths and widths all follow
// from names and shapes, so smaller and distilled relatives (SSD-1B, Vega, KOALA) are read like the full model. Norms
// have 32 groups. Shapes do not say how wide heads are: 64 channels, or as many heads at every level.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "nn/layers.hpp"

namespace lora_host::nn {

enum class UNetPart { convolution, res, transformer, downsample, upsample };

struct UNetModule {
  std::string name;  // "input_blocks.4.1"
  UNetPart part;
  int64_t depth = 0;  // transformer blocks
};
using UNetBlock = std::vector<UNetModule>;

struct UNetLayout {
  static constexpr int64_t groups = 32;
  static constexpr double res_eps = 1e-5, transformer_norm_eps = 1e-6, layer_norm_eps = 1e-5;

  int64_t in_channels = 0, out_channels = 0;
  int64_t embedding = 0;  // width of the vector that res blocks take
  int64_t context = 0;    // width of the text; 0 without any transformer
  int64_t levels = 0;     // of halved sizes: latents divide by 2^levels
  int64_t heads = 0;      // of every transformer; 0: as many as are 64 wide
  std::vector<UNetBlock> input, output;
  UNetBlock middle;

  int64_t head_width(int64_t channels) const { return heads == 0 ? 64 : channels / heads; }
  // For inpainting: behind the latents a mask and as many channels of the image without what is to be painted.
  bool inpaints() const { return in_channels == 2 * out_channels + 1; }
};

// Reads a layout and checks the shape of every tensor on the way. Throws Failure that names the tensor.
class UNetReader {
 public:
  // heads: as UNetLayout has them.
  explicit UNetReader(const Weights& weights, int64_t heads = 0) : w_(weights) { layout_.heads = heads; }

  UNetLayout read() {
    layout_.embedding = w_.require("time_embed.2.weight", {-1, -1})[0];
    channels_ = layout_.in_channels = w_.require("input_blocks.0.0.weight", {-1, -1, 3, 3})[1];
    struct Kept {
      std::string block;
      int64_t channels, level;
    };
    std::vector<Kept> kept;
    int64_t level = 0;
    for (size_t i = 0; has_block("input_blocks." + std::to_string(i)); ++i) {
      std::string name = "input_blocks." + std::to_string(i);
      layout_.input.push_back(block(name, level));
      kept.push_back({name, channels_, level});
    }
    for (size_t i = layout_.input.size() + 1; i < layout_.input.size() + 3; ++i)
      if (has_block("input_blocks." + std::to_string(i)))
        throw Failure(LH_E_MODEL, "input_blocks." + std::to_string(layout_.input.size()) +
                                      " is missing, but input_blocks." + std::to_string(i) +
                                      " is there: the file is incomplete, or a diffusers folder whose levels do not "
                                      "have two res blocks; use the single file of such a model");
    layout_.levels = level;
    if (has_block("middle_block")) layout_.middle = block("middle_block", level);
    for (size_t i = 0; !kept.empty(); ++i, kept.pop_back()) {
      std::string name = "output_blocks." + std::to_string(i);
      if (!has_block(name))
        throw Failure(LH_E_MODEL, "missing block " + name + ", which joins the result of " + kept.back().block);
      if (kept.back().level != level)
        throw Failure(LH_E_MODEL, name + " gets images of 1/2^" + std::to_string(level) + " of the size, but " +
                                      kept.back().block + ", which it joins, gives 1/2^" +
                                      std::to_string(kept.back().level));
      channels_ += kept.back().channels;
      layout_.output.push_back(block(name, level));
    }
    if (std::string extra = "output_blocks." + std::to_string(layout_.output.size()); has_block(extra))
      throw Failure(LH_E_MODEL, extra + " has no input block to join: expected as many output as input blocks (" +
                                    std::to_string(layout_.input.size()) + ")");
    if (level != 0)
      throw Failure(LH_E_MODEL, "output_blocks: " + std::to_string(layout_.levels) + " downsamples, but " +
                                    std::to_string(layout_.levels - level) + " upsamples");
    norm("out.0");
    layout_.out_channels = w_.require("out.2.weight", {-1, channels_, 3, 3})[0];
    return std::move(layout_);
  }

 private:
  static std::string at(const std::string& name, int64_t i) { return name + "." + std::to_string(i); }

  bool is(const std::string& name, UNetPart part) const {
    switch (part) {
      case UNetPart::convolution: return w_.has(name + ".weight");
      case UNetPart::res: return w_.has(name + ".in_layers.2.weight");
      case UNetPart::transformer: return w_.has(name + ".proj_in.weight");
      case UNetPart::downsample: return w_.has(name + ".op.weight");
      case UNetPart::upsample: return w_.has(name + ".conv.weight");
    }
    return false;
  }
  bool has_module(const std::string& name) const {
    for (UNetPart part : all_parts)
      if (is(name, part)) return true;
    return false;
  }
  bool has_block(const std::string& name) const { return has_module(at(name, 0)); }

  UNetBlock block(const std::string& name, int64_t& level) {
    UNetBlock modules;
    for (int64_t i = 0; has_module(at(name, i)); ++i) {
      UNetModule module{at(name, i), UNetPart::res};
      for (UNetPart part : all_parts)
        if (is(module.name, part)) module.part = part;
      switch (module.part) {
        case UNetPart::convolution: convolution(module.name); break;
        case UNetPart::res: res(module.name); break;
        case UNetPart::transformer: module.depth = transformer(module.name); break;
        case UNetPart::downsample: convolution(module.name + ".op"), ++level; break;
        case UNetPart::upsample: convolution(module.name + ".conv"), --level; break;
      }
      modules.push_back(module);
    }
    return modules;
  }

  void norm(const std::string& name) const {
    if (channels_ % UNetLayout::groups != 0)
      throw Failure(LH_E_MODEL, name + ": " + std::to_string(channels_) + " channels are not 32 groups");
    w_.require(name + ".weight", {channels_});
    w_.require(name + ".bias", {channels_});
  }

  void convolution(const std::string& name) {
    int64_t out = w_.require(name + ".weight", {-1, channels_, 3, 3})[0];
    w_.require(name + ".bias", {out});
    channels_ = out;
  }

  void res(const std::string& name) {
    norm(name + ".in_layers.0");
    int64_t in = channels_;
    convolution(name + ".in_layers.2");
    w_.require_linear(name + ".emb_layers.1", channels_, layout_.embedding);
    norm(name + ".out_layers.0");
    w_.require(name + ".out_layers.3.weight", {channels_, channels_, 3, 3});
    if (in != channels_ || w_.has(name + ".skip_connection.weight"))
      w_.require(name + ".skip_connection.weight", {channels_, in, 1, 1});
  }

  // Gives the number of transformer blocks.
  int64_t transformer(const std::string& name) {
    int64_t c = channels_;
    if (layout_.heads == 0 && c % 64 != 0)
      throw Failure(LH_E_MODEL, name + ": " + std::to_string(c) + " channels are not heads of 64");
    if (layout_.heads != 0 && c % layout_.heads != 0)
      throw Failure(LH_E_MODEL,
                    name + ": " + std::to_string(c) + " channels are not " + std::to_string(layout_.heads) + " heads");
    norm(name + ".norm");
    for (const char* side : {".proj_in", ".proj_out"}) require_pointwise(w_, name + side, c, c);
    int64_t depth = w_.count(name + ".transformer_blocks.", ".norm1.weight");
    if (depth == 0) throw Failure(LH_E_MODEL, "missing tensor " + name + ".transformer_blocks.0.norm1.weight");
    if (layout_.context == 0)
      layout_.context = w_.require(name + ".transformer_blocks.0.attn2.to_k.weight", {c, -1})[1];
    for (int64_t i = 0; i < depth; ++i) {
      std::string block = at(name + ".transformer_blocks", i);
      for (const char* side : {".norm1", ".norm2", ".norm3"}) w_.require(block + side + ".weight", {c});
      for (const char* side : {".attn1", ".attn2"}) {
        int64_t from = side == std::string(".attn1") ? c : layout_.context;
        w_.require_linear(block + side + ".to_q", c, c, false);
        w_.require_linear(block + side + ".to_k", c, from, false);
        w_.require_linear(block + side + ".to_v", c, from, false);
        w_.require_linear(block + side + ".to_out.0", c, c);
      }
      int64_t inner = w_.require(block + ".ff.net.2.weight", {c, -1})[1];
      w_.require_linear(block + ".ff.net.0.proj", 2 * inner, c);
      w_.require_linear(block + ".ff.net.2", c, inner);
    }
    return depth;
  }

  static constexpr UNetPart all_parts[] = {UNetPart::convolution, UNetPart::res, UNetPart::transformer,
                                           UNetPart::downsample, UNetPart::upsample};
  const Weights& w_;
  UNetLayout layout_;
  int64_t channels_ = 0;  // at the place where reading is
};

// The image that a UNet is given: latents [N, H, W, C], and for inpainting behind them mask [N, H, W, 64], of which
// each place has its nearest pixel, the first, and masked_image [N, H, W, C].
inline Value unet_latents(Graph& g, const UNetLayout& layout, const Sizes& sizes) {
  constexpr int64_t mask_pixels = 64;  // of a latent place
  const Dims like = {sizes["batch"], sizes["height"], sizes["width"], layout.out_channels};
  Value latents = g.input("latents", like);
  if (!layout.inpaints()) return latents;
  Value mask = g.slice(g.input("mask", {like[0], like[1], like[2], mask_pixels}), -1, 0, 1);
  return g.concat({latents, mask, g.input("masked_image", like)}, -1);
}

// The graph of a layout.
class UNet {
 public:
  // embedding [N, E], context [N, L, D]
  UNet(Graph& g, const UNetLayout& layout, Value embedding, Value context)
      : g_(g), layout_(layout), activated_(g.silu(embedding)), context_(context) {}

  Value operator()(Value x) {
    check_size(x);
    std::vector<Value> kept;
    for (const UNetBlock& block : layout_.input) kept.push_back(x = run(block, x));
    x = run(layout_.middle, x);
    for (const UNetBlock& block : layout_.output) {
      x = run(block, g_.concat({x, kept.back()}, -1));
      kept.pop_back();
    }
    return conv3(g_.silu(norm(x, "out.0", UNetLayout::res_eps)), "out.2");
  }

 private:
  void check_size(Value x) {
    Dims d = g_.shape(x);
    int64_t step = int64_t{1} << layout_.levels;
    if (d[1] % step != 0 || d[2] % step != 0)
      throw Failure(LH_E_SETTING, "latents " + dims_text(d) + " are halved " + std::to_string(layout_.levels) +
                                      " times: height and width must be multiples of " + std::to_string(step));
  }

  Value norm(Value x, const std::string& name, double eps) { return g_.group_norm(x, name, UNetLayout::groups, eps); }
  Value conv3(Value x, const std::string& name, int64_t stride = 1) { return g_.conv2d(x, name, stride, {1, 1, 1, 1}); }

  Value run(const UNetBlock& block, Value x) {
    for (const UNetModule& module : block) switch (module.part) {
        case UNetPart::convolution: x = conv3(x, module.name); break;
        case UNetPart::res: x = res(x, module.name); break;
        case UNetPart::transformer: x = transformer(x, module); break;
        case UNetPart::downsample: x = conv3(x, module.name + ".op", 2); break;
        case UNetPart::upsample: x = conv3(g_.upsample_nearest2x(x), module.name + ".conv"); break;
      }
    return x;
  }

  Value res(Value x, const std::string& name) {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    Value h = conv3(g_.silu(norm(x, name + ".in_layers.0", UNetLayout::res_eps)), name + ".in_layers.2");
    Value e = g_.linear(activated_, name + ".emb_layers.1");  // [N, C]
    Dims d = g_.shape(e);
    h = g_.add(h, g_.reshape(e, {d[0], 1, 1, d[1]}));
    h = conv3(g_.silu(norm(h, name + ".out_layers.0", UNetLayout::res_eps)), name + ".out_layers.3");
    if (g_.weights().has(name + ".skip_connection.weight")) x = g_.conv2d(x, name + ".skip_connection");
    return g_.add(x, h);
  }

  // Attention over all places of the image, and over the text.
  Value transformer(Value x, const UNetModule& module) {
    Dims d = g_.shape(x);  // [N, H, W, C]
    Value h = norm(x, module.name + ".norm", UNetLayout::transformer_norm_eps);
    h = g_.reshape(pointwise(g_, h, module.name + ".proj_in"), {d[0], d[1] * d[2], d[3]});  // [N, S, C]
    for (int64_t i = 0; i < module.depth; ++i)
      h = transformer_block(h, module.name + ".transformer_blocks." + std::to_string(i));
    return g_.add(x, pointwise(g_, g_.reshape(h, d), module.name + ".proj_out"));
  }

  Value transformer_block(Value x, const std::string& name) {
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    Value y = g_.layer_norm(x, name + ".norm1", UNetLayout::layer_norm_eps);
    x = g_.add(x, attention(y, y, name + ".attn1"));
    x = g_.add(x, attention(g_.layer_norm(x, name + ".norm2", UNetLayout::layer_norm_eps), context_, name + ".attn2"));
    return g_.add(x, feed_forward(g_.layer_norm(x, name + ".norm3", UNetLayout::layer_norm_eps), name + ".ff"));
  }

  Value attention(Value x, Value from, const std::string& name) {
    const int64_t width = layout_.head_width(g_.shape(x)[2]);
    Value q = split_heads(g_, g_.linear(x, name + ".to_q"), width);
    Value k = split_heads(g_, g_.linear(from, name + ".to_k"), width);
    Value v = split_heads(g_, g_.linear(from, name + ".to_v"), width);
    Value y = g_.attention(q, k, v, 1.0 / std::sqrt(static_cast<double>(width)));
    return g_.linear(merge_heads(g_, y), name + ".to_out.0");
  }

  // Gated: the first half of net.0.proj is the value, the second the gate.
  Value feed_forward(Value x, const std::string& name) {
    Value wide = g_.linear(x, name + ".net.0.proj");  // [N, S, 2 inner]
    int64_t inner = g_.shape(wide)[2] / 2;
    std::vector<Value> parts = g_.split(wide, -1, {inner, inner});
    return g_.linear(g_.mul(parts[0], g_.gelu(parts[1], "erf")), name + ".net.2");
  }

  Graph& g_;
  const UNetLayout& layout_;
  Value activated_, context_;
};

}  // namespace lora_host::nn
