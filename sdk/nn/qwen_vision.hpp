// The vision tower of Qwen2.5-VL: a picture [1, H, W, 3] in [-1, 1] -> rows [1, H/28 W/28, d], which take the place of
// as many tokens of a prompt.
//
//   x = patches of 14 pixels, the picture twice in time;  x += proj(attention);  x += down(silu(gate y) * up y)
//   rows = fc2(gelu(fc1(2x2 neighbours of norm(x))))
// Every norm is an RMS norm. A patch sees the patches of its window of 112 pixels, in each eighth layer all. Tokens
// stand window by window, so that windows are samples of a batch; sides that are no multiples of 112 pixels are filled
// up with patches that no one sees. Rotary positions in halves: the row turns the first half of the frequencies, the
// column the others.
#pragma once

#include <string>
#include <vector>

#include "nn/clip_colours.hpp"
#include "nn/llm.hpp"
#include "nn/mmdit.hpp"

namespace lora_host::nn {

class QwenVision {
 public:
  static constexpr int64_t patch = 14, merge = 2;  // pixels of a patch, patches of a row's square
  static constexpr int64_t cell = patch * merge;   // pixels of it
  static constexpr int64_t head_dim = 80;

  // The weights are those of `prefix`, e.g. "qwen2_5_vl:visual.".
  QwenVision(Graph& g, std::string prefix) : g_(g), root_(std::move(prefix)) {}

  Value operator()(Value picture) {
    const Dims d = g_.shape(picture);
    if (d[1] % cell != 0 || d[2] % cell != 0)
      throw Failure(LH_E_INVALID, "a picture of Qwen2.5-VL has sides of multiples of 28 pixels, found " + dims_text(d));
    rows_ = d[1] / patch, columns_ = d[2] / patch;
    down_ = (rows_ + window - 1) / window, across_ = (columns_ + window - 1) / window;
    place_tokens();
    Value x = windows(patches(picture));
    const int64_t layers = g_.weights().count(root_ + "blocks.", ".norm1.weight");
    for (int64_t i = 0; i < layers; ++i) x = layer(i, x);
    return merged(x);
  }

 private:
  static constexpr int64_t window = 8, groups = window / merge, full_every = 8;  // patches and groups of a side; layers
  static constexpr double eps = 1e-6;

  // [1, rows, columns, h]
  Value patches(Value picture) {
    const Dims d = g_.shape(picture);
    Value x = clip_colours(g_, picture);
    x = g_.expand(g_.reshape(x, {1, 1, d[1], d[2], 3}), {1, 2, d[1], d[2], 3});
    x = g_.conv3d(x, root_ + "patch_embed.proj", {2, patch, patch});
    return g_.reshape(x, {1, rows_, columns_, g_.shape(x)[4]});
  }

  // Window by window, in each the groups of 2x2 one after the other -> [1, S, h]
  Value windows(Value x) {
    const int64_t h = g_.shape(x)[3], below = down_ * window - rows_, beside = across_ * window - columns_;
    if (below + beside > 0) x = g_.pad(x, {0, 0, 0, 0}, {0, below, beside, 0});
    x = g_.reshape(x, {down_, groups, merge, across_, groups, merge, h});
    return g_.reshape(g_.permute(x, {0, 3, 1, 4, 2, 5, 6}), {1, tokens(), h});
  }

  // Positions of the tokens, and which are there.
  void place_tokens() {
    using Id = std::array<int64_t, 2>;
    std::vector<Id> ids;
    std::vector<int32_t> there;
    for (int64_t token = 0; token < tokens(); ++token) {
      const int64_t in = token % (window * window), group = in / (merge * merge), place = in % (merge * merge);
      const int64_t number = token / (window * window);
      const Id id{number / across_ * window + group / groups * merge + place / merge,
                  number % across_ * window + group % groups * merge + place % merge};
      ids.push_back(id);
      there.push_back(id[0] < rows_ && id[1] < columns_ ? 1 : 0);
    }
    rope_ = rope_tables(g_, ids, Id{head_dim / 2, head_dim / 2}, 10000.0);
    rope_.interleaved = false;
    if (tokens() == rows_ * columns_) return;
    in_windows_ = g_.constant({down_ * across_, window * window}, there);
    in_picture_ = g_.constant({1, tokens()}, there);
  }
  int64_t tokens() const { return down_ * across_ * window * window; }

  Value layer(int64_t index, Value x) {
    const std::string name = root_ + "blocks." + std::to_string(index);
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    x = g_.add(x, attention(g_.rms_norm(x, name + ".norm1", eps), name + ".attn", (index + 1) % full_every == 0));
    Value y = g_.rms_norm(x, name + ".norm2", eps);
    y = g_.mul(g_.silu(g_.linear(y, name + ".mlp.gate_proj")), g_.linear(y, name + ".mlp.up_proj"));
    return g_.add(x, g_.linear(y, name + ".mlp.down_proj"));
  }

  Value attention(Value x, const std::string& module, bool full) {
    const Qkv qkv = rotated(g_, fused_qkv(g_, x, module + ".qkv", head_dim, "", ""), rope_);
    const Dims whole = g_.shape(qkv.q);  // [1, S, H, D]
    const Dims cut = full ? whole : Dims{down_ * across_, window * window, whole[2], head_dim};
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    Value y = g_.attention(g_.reshape(qkv.q, cut), g_.reshape(qkv.k, cut), g_.reshape(qkv.v, cut), scale, {}, {},
                           full ? in_picture_ : in_windows_);
    return g_.linear(merge_heads(g_, g_.reshape(y, whole)), module + ".proj");
  }

  // A row for each group, row by row of the picture.
  Value merged(Value x) {
    x = g_.rms_norm(x, root_ + "merger.ln_q", eps);
    constexpr int64_t of_group = merge * merge;
    x = g_.reshape(x, {1, tokens() / of_group, g_.shape(x)[2] * of_group});
    x = g_.linear(g_.gelu(g_.linear(x, root_ + "merger.mlp.0"), "erf"), root_ + "merger.mlp.2");
    const int64_t d = g_.shape(x)[2], rows = rows_ / merge, columns = columns_ / merge;
    x = g_.permute(g_.reshape(x, {down_, across_, groups, groups, d}), {0, 2, 1, 3, 4});
    x = g_.reshape(x, {1, down_ * groups, across_ * groups, d});
    x = g_.slice(g_.slice(x, 1, 0, rows), 2, 0, columns);
    return g_.reshape(x, {1, rows * columns, d});
  }

  Graph& g_;
  std::string root_;
  int64_t rows_ = 0, columns_ = 0, down_ = 0, across_ = 0;  // patches of the picture, its windows
  RopeTables rope_;
  Value in_windows_, in_picture_;  // i32 [windows, 64], [1, S]: 1 = a patch is there; absent where all are
};

// Throws when a tensor that QwenVision needs is missing or of another shape. width: of the language model.
inline void check_qwen_vision(const Weights& weights, const std::string& prefix, int64_t width) {
  constexpr int64_t patch = QwenVision::patch, heads_of = QwenVision::head_dim;
  const int64_t h = weights.require(prefix + "patch_embed.proj.weight", {-1, 3, 2, patch, patch})[0];
  if (h % heads_of != 0)
    throw Failure(LH_E_MODEL, prefix + "patch_embed.proj.weight: expected a multiple of 80 rows (heads of 80), found " +
                                  std::to_string(h));
  const int64_t layers = weights.count(prefix + "blocks.", ".norm1.weight");
  for (int64_t i = 0; i < std::max<int64_t>(layers, 1); ++i) {
    const std::string name = prefix + "blocks." + std::to_string(i);
    for (const char* norm : {".norm1.weight", ".norm2.weight"}) weights.require(name + norm, {h});
    weights.require_linear(name + ".attn.qkv", 3 * h, h);
    weights.require_linear(name + ".attn.proj", h, h);
    const int64_t inner = weights.require(name + ".mlp.gate_proj.weight", {-1, h})[0];
    weights.require_linear(name + ".mlp.gate_proj", inner, h);
    weights.require_linear(name + ".mlp.up_proj", inner, h);
    weights.require_linear(name + ".mlp.down_proj", h, inner);
  }
  const int64_t group = QwenVision::merge * QwenVision::merge * h;
  weights.require(prefix + "merger.ln_q.weight", {h});
  weights.require_linear(prefix + "merger.mlp.0", group, group);
  weights.require_linear(prefix + "merger.mlp.2", width, group);
}

}  // namespace lora_host::nn
