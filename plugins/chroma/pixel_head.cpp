// The head of Chroma1-Radiance. A pixel's features, [patches, P P, width], begin with its colours and its place:
//
//   x = embedder(r, g, b, cos(pi u across) cos(pi v down) / (1 + u v) for all u, v)        in float32
//
// and in each block the patch has gate, value and out, three matrices that param_generator makes of what the
// transformer says of it, their columns brought to length 1:
//
//   y = rms_norm(x);   x = x + (silu(y gate) * (y value)) out
//
// Patches go through it some at a time, each part of a block a scope of its own: what is between holds four times as
// many numbers as a picture of the width, and is made again in the backward pass where memory is short.
#include "pixel_head.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "nn/flux_blocks.hpp"

namespace chroma {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

constexpr double eps = 1e-6;
constexpr int64_t pixels_at_once = 128 << 10;  // 512 patches of 16
const std::string convolution = "nerf_final_layer_conv", linear = "nerf_final_layer";

std::string block_name(int64_t block) { return "nerf_blocks." + std::to_string(block); }

// The place of each pixel in its patch, rows one after the other: f32 [1, P P, frequencies^2].
Value places(Graph& g, const PixelHead& head) {
  std::vector<float> table;
  const double last = static_cast<double>(std::max<int64_t>(head.patch - 1, 1));
  const auto wave = [&](int64_t at, int64_t frequency) {
    return std::cos(std::numbers::pi * static_cast<double>(frequency * at) / last);
  };
  for (int64_t row = 0; row < head.patch; ++row)
    for (int64_t column = 0; column < head.patch; ++column)
      for (int64_t u = 0; u < head.frequencies; ++u)
        for (int64_t v = 0; v < head.frequencies; ++v)
          table.push_back(static_cast<float>(wave(column, u) * wave(row, v) / static_cast<double>(1 + u * v)));
  return g.constant({1, head.patch * head.patch, head.frequencies * head.frequencies}, table);
}

// colours f32 [n, P P, 3] -> [n, P P, width]
Value embed(Graph& g, const PixelHead& head, Value colours) {
  const std::string module = "nerf_image_embedder.embedder.0";
  auto scope = g.scope("nerf_image_embedder", LH_SCOPE_CHECKPOINT);
  const int64_t patches = g.shape(colours)[0], pixels = head.patch * head.patch;
  Value place = g.expand(places(g, head), {patches, pixels, head.frequencies * head.frequencies});
  Value weight = g.cast(g.param(module + ".weight"), LH_F32), bias = g.cast(g.param(module + ".bias"), LH_F32);
  return g.cast(g.linear(g.concat({colours, place}, -1), weight, bias), LH_FLOAT);
}

// Some of what was made, as matrices [n, in, out] with columns of length 1.
Value as_matrices(Graph& g, Value made, int64_t in, int64_t out) {
  Value matrices = g.reshape(made, {g.shape(made)[0], in, out});
  Value squares = g.sum(g.square(g.cast(matrices, LH_F32)), {1});
  return g.mul(matrices, g.rsqrt(g.clamp(squares, 1e-24, std::numeric_limits<float>::max())));
}

// x [n, P P, width], said [n, h] -> like x
Value block(Graph& g, const PixelHead& head, const std::string& name, Value x, Value said) {
  auto scope = g.scope(name, LH_SCOPE_CHECKPOINT);
  const int64_t each = head.width * head.inner;
  const std::vector<Value> made = g.split(g.linear(said, name + ".param_generator"), -1, {each, each, each});
  Value y = g.rms_norm(x, eps, g.param(nn::flux_norm(g.weights(), name + ".norm")));
  Value gate = g.matmul(y, as_matrices(g, made[0], head.width, head.inner));
  Value value = g.matmul(y, as_matrices(g, made[1], head.width, head.inner));
  return g.add(x, g.matmul(g.mul(g.silu(gate), value), as_matrices(g, made[2], head.inner, head.width)));
}

// [n, ...] in parts of so many, the last of what is left.
std::vector<Value> in_parts(Graph& g, Value x, int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t left = g.shape(x)[0]; left > 0; left -= most) sizes.push_back(std::min(left, most));
  return g.split(x, 0, sizes);
}

}  // namespace

bool has_pixel_head(const Weights& w) { return !w.first_with_prefix("nerf_").empty(); }

PixelHead read_pixel_head(const Weights& w, int64_t hidden) {
  constexpr int64_t channels = PixelHead::channels;
  const Dims in = w.require("img_in_patch.weight", {hidden, channels, -1, -1});
  PixelHead head{.patch = in[2], .gives_picture = w.has("__x0__")};
  if (in[3] != in[2])
    throw Failure(LH_E_MODEL,
                  "img_in_patch.weight: expected patches as high as wide, found " + lora_host::dims_text(in));
  // Such a file says that it sees each other pixel of patches twice as wide as these.
  if (w.has("__32x32__") && head.patch != 32)
    throw Failure(
        LH_E_MODEL,
        "this is the experimental Chroma1-Radiance that sees its pictures at half their size (__32x32__ beside "
        "patches of " +
            std::to_string(head.patch) + " in img_in_patch.weight): use another file of it");
  w.require("img_in_patch.bias", {hidden});
  const Dims embedder = w.require("nerf_image_embedder.embedder.0.weight", {-1, -1});
  head.width = embedder[0];
  head.frequencies = std::llround(std::sqrt(static_cast<double>(embedder[1] - channels)));
  if (head.frequencies < 1 || head.frequencies * head.frequencies + channels != embedder[1])
    throw Failure(LH_E_MODEL,
                  "nerf_image_embedder.embedder.0.weight: expected 3 columns and a square number of them, "
                  "found " +
                      std::to_string(embedder[1]));
  w.require("nerf_image_embedder.embedder.0.bias", {head.width});
  head.blocks = w.count("nerf_blocks.", ".param_generator.weight");
  const Dims generator = w.require(block_name(0) + ".param_generator.weight", {-1, hidden});
  head.inner = generator[0] / (3 * head.width);
  if (head.inner < 1 || generator[0] != 3 * head.width * head.inner)
    throw Failure(LH_E_MODEL, block_name(0) + ".param_generator.weight: expected a multiple of " +
                                  std::to_string(3 * head.width) + " rows (three matrices), found " +
                                  std::to_string(generator[0]));
  for (int64_t i = 0; i < head.blocks; ++i) {
    w.require_linear(block_name(i) + ".param_generator", generator[0], hidden);
    w.require(nn::flux_norm(w, block_name(i) + ".norm"), {head.width});
  }
  head.sees_neighbours = !w.first_with_prefix(convolution + ".").empty();
  const std::string last = head.sees_neighbours ? convolution : linear;
  w.require(nn::flux_norm(w, last + ".norm"), {head.width});
  if (head.sees_neighbours)
    w.require(convolution + ".conv.weight", {channels, head.width, 3, 3});
  else
    w.require(linear + ".linear.weight", {channels, head.width});
  w.require(last + (head.sees_neighbours ? ".conv.bias" : ".linear.bias"), {channels});
  return head;
}

Value build_pixel_head(Graph& g, const PixelHead& head, Value pixels, Value said) {
  const Dims d = g.shape(pixels), tokens = g.shape(said);
  const int64_t each = head.patch * head.patch, patches = tokens[0] * tokens[1];
  const int64_t at_once = std::max<int64_t>(1, pixels_at_once / each);
  Value cut = g.reshape(nn::patchify_channel_last(g, pixels, head.patch), {patches, each, PixelHead::channels});
  std::vector<Value> parts = in_parts(g, cut, at_once);
  const std::vector<Value> words = in_parts(g, g.reshape(said, {patches, tokens[2]}), at_once);
  for (Value& part : parts) part = embed(g, head, part);
  for (int64_t i = 0; i < head.blocks; ++i)
    for (size_t n = 0; n < parts.size(); ++n) parts[n] = block(g, head, block_name(i), parts[n], words[n]);

  const std::string last = head.sees_neighbours ? convolution : linear;
  auto scope = g.scope(last);
  Value x = g.rms_norm(g.concat(parts, 0), eps, g.param(nn::flux_norm(g.weights(), last + ".norm")));
  x = g.reshape(x, {tokens[0], tokens[1], each * head.width});
  x = nn::unpatchify_channel_last(g, x, d[1], d[2], head.patch);
  return head.sees_neighbours ? g.conv2d(x, convolution + ".conv", 1, {1, 1, 1, 1}) : g.linear(x, linear + ".linear");
}

}  // namespace chroma
