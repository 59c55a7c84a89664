// The vision tower of Qwen3-VL: a picture [1, H, W, 3] in [-1, 1] -> rows [1, H/32 W/32, d], which take the place of as
// many tokens of a prompt, and rows of the same shape that are added to these behind the first layers of the language
// model (DeepStack, arXiv 2406.04334).
//
//   x = patches of 16 pixels, the picture twice in time, + places
//   x += proj(attention(norm(x)));  x += fc2(gelu(fc1(norm(x))))
//   rows = merger(x);  rows behind language layer i = deepstack_merger i(x behind layer deep[i])
//   merger: fc2(gelu(fc1(2x2 neighbours of norm(x)))), of those of DeepStack norm(2x2 neighbours of x)
// A learned square of places is stretched over the picture, corners on corners. Rotary positions in halves: the row
// turns the first half of the frequencies, the column the others.
#pragma once

#include <string>
#include <vector>

#include "nn/mmdit.hpp"

namespace lora_host::nn {

class Qwen3Vision {
 public:
  static constexpr int64_t patch = 16, merge = 2;  // pixels of a patch, patches of a row's square
  static constexpr int64_t cell = patch * merge;   // pixels of it
  static constexpr int64_t heads = 16;             // of every published size

  struct Rows {
    Value shown;              // [1, n, d]
    std::vector<Value> deep;  // the same, for each of the first layers
  };

  // The weights are those of `prefix`, e.g. "qwen3_vl:visual.".
  Qwen3Vision(Graph& g, std::string prefix) : g_(g), root_(std::move(prefix)) {}

  static int64_t layers(const Weights& weights, const std::string& prefix) {
    return weights.count(prefix + "blocks.", ".norm1.weight");
  }
  // Behind which layers the rows of DeepStack are taken, which the weights do not say: 8, 16 and 24 of 27 (8B and
  // larger), 5, 11 and 17 of 24 (2B, 4B).
  static std::vector<int64_t> deep_layers(int64_t layers) {
    if (layers == 27) return {8, 16, 24};
    const int64_t quarter = layers / 4;
    return {quarter - 1, 2 * quarter - 1, 3 * quarter - 1};
  }

  Rows operator()(Value picture) {
    const Dims d = g_.shape(picture);
    if (d[1] % cell != 0 || d[2] % cell != 0)
      throw Failure(LH_E_INVALID, "a picture of Qwen3-VL has sides of multiples of 32 pixels, found " + dims_text(d));
    rows_ = d[1] / patch, columns_ = d[2] / patch;
    Value x = patches(picture);
    width_ = g_.shape(x)[2];
    x = g_.add(x, g_.cast(places(), LH_FLOAT));
    const RopeTables rope = positions();
    const int64_t count = layers(g_.weights(), root_);
    const std::vector<int64_t> deep = deep_layers(count);
    Rows out;
    for (int64_t i = 0; i < count; ++i) {
      x = layer(i, x, rope);
      if (out.deep.size() < deep.size() && i == deep[out.deep.size()])
        out.deep.push_back(merged(root_ + "deepstack_merger_list." + std::to_string(out.deep.size()), x, true));
    }
    out.shown = merged(root_ + "merger", x, false);
    return out;
  }

 private:
  static constexpr double eps = 1e-6;

  // [1, rows columns, h], row by row
  Value patches(Value picture) {
    const Dims d = g_.shape(picture);
    Value x = g_.expand(g_.reshape(picture, {1, 1, d[1], d[2], 3}), {1, 2, d[1], d[2], 3});
    x = g_.conv3d(x, root_ + "patch_embed.proj", {2, patch, patch});
    return g_.reshape(x, {1, rows_ * columns_, g_.shape(x)[4]});
  }

  // Where of `from` points on a line each of `to` lies that begin and end with it, as the point before it and the share
  // of the next one.
  struct Between {
    int64_t before, after;
    float share;
  };
  static std::vector<Between> stretched(int64_t from, int64_t to) {
    std::vector<Between> all;
    for (int64_t i = 0; i < to; ++i) {
      const double at = to > 1 ? static_cast<double>(i * (from - 1)) / static_cast<double>(to - 1) : 0;
      const auto before = static_cast<int64_t>(at);
      all.push_back({before, std::min(before + 1, from - 1), static_cast<float>(at - static_cast<double>(before))});
    }
    return all;
  }

  // The square of learned places over the picture, f32 [1, rows columns, h]: of each patch its four neighbours.
  Value places() {
    const std::string name = root_ + "pos_embed";
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(g_.weights().require(name + ".weight")[0])));
    const std::vector<Between> down = stretched(side, rows_), across = stretched(side, columns_);
    Value sum;
    for (const bool below : {false, true})
      for (const bool beside : {false, true}) {
        std::vector<int32_t> ids;
        std::vector<float> shares;
        for (const Between& row : down)
          for (const Between& column : across) {
            ids.push_back(static_cast<int32_t>((below ? row.after : row.before) * side +
                                               (beside ? column.after : column.before)));
            shares.push_back((below ? row.share : 1 - row.share) * (beside ? column.share : 1 - column.share));
          }
        const int64_t count = rows_ * columns_;
        Value part = g_.cast(g_.embedding(g_.constant({1, count}, ids), name), LH_F32);
        part = g_.mul(part, g_.constant({1, count, 1}, shares));
        sum = sum ? g_.add(sum, part) : part;
      }
    return sum;
  }

  RopeTables positions() {
    using Id = std::array<int64_t, 2>;
    std::vector<Id> ids;
    for (int64_t row = 0; row < rows_; ++row)
      for (int64_t column = 0; column < columns_; ++column) ids.push_back({row, column});
    const int64_t half = width_ / heads / 2;
    RopeTables rope = rope_tables(g_, ids, Id{half, half}, 10000.0);
    rope.interleaved = false;
    return rope;
  }

  Value layer(int64_t index, Value x, const RopeTables& rope) {
    const std::string name = root_ + "blocks." + std::to_string(index);
    auto scope = g_.scope(name, LH_SCOPE_CHECKPOINT);
    Value y = g_.layer_norm(x, name + ".norm1", eps);
    const Qkv qkv = fused_qkv(g_, y, name + ".attn.qkv", width_ / heads, "", "");
    x = g_.add(x, g_.linear(self_attention(g_, qkv, rope), name + ".attn.proj"));
    y = g_.layer_norm(x, name + ".norm2", eps);
    return g_.add(x, mlp(g_, y, name + ".mlp.linear_fc1", name + ".mlp.linear_fc2"));
  }

  // A row for each square of 2x2 patches, row by row of the picture.
  Value merged(const std::string& module, Value x, bool norm_of_square) {
    if (!norm_of_square) x = g_.layer_norm(x, module + ".norm", eps);
    x = g_.reshape(x, {rows_ / merge, merge, columns_ / merge, merge, width_});
    x = g_.permute(x, {0, 2, 1, 3, 4});
    x = g_.reshape(x, {1, rows_ / merge * (columns_ / merge), merge * merge * width_});
    if (norm_of_square) x = g_.layer_norm(x, module + ".norm", eps);
    return g_.linear(g_.gelu(g_.linear(x, module + ".linear_fc1"), "erf"), module + ".linear_fc2");
  }

  Graph& g_;
  std::string root_;
  int64_t rows_ = 0, columns_ = 0, width_ = 0;  // patches of the picture, numbers of each
};

// Throws when a tensor that Qwen3Vision needs is missing or of another shape. width: of the language model.
inline void check_qwen3_vision(const Weights& weights, const std::string& prefix, int64_t width) {
  constexpr int64_t patch = Qwen3Vision::patch, heads = Qwen3Vision::heads;
  const int64_t h = weights.require(prefix + "patch_embed.proj.weight", {-1, 3, 2, patch, patch})[0];
  if (h % (4 * heads) != 0)
    throw Failure(LH_E_MODEL, prefix + "patch_embed.proj.weight: expected a multiple of 64 rows (16 heads, which two " +
                                  "axes turn), found " + std::to_string(h));
  const int64_t places = weights.require(prefix + "pos_embed.weight", {-1, h})[0];
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(places)));
  if (side * side != places)
    throw Failure(LH_E_MODEL,
                  prefix + "pos_embed.weight: expected a square number of rows, found " + std::to_string(places));
  const auto require_norm = [&](const std::string& module, int64_t numbers) {
    for (const char* part : {".weight", ".bias"}) weights.require(module + part, {numbers});
  };
  const int64_t layers = Qwen3Vision::layers(weights, prefix);
  if (layers < 4)
    throw Failure(LH_E_MODEL, prefix + "blocks: expected at least 4 layers, found " + std::to_string(layers));
  for (int64_t i = 0; i < layers; ++i) {
    const std::string name = prefix + "blocks." + std::to_string(i);
    for (const char* norm : {".norm1", ".norm2"}) require_norm(name + norm, h);
    weights.require_linear(name + ".attn.qkv", 3 * h, h);
    weights.require_linear(name + ".attn.proj", h, h);
    const int64_t inner = weights.require(name + ".mlp.linear_fc1.weight", {-1, h})[0];
    weights.require_linear(name + ".mlp.linear_fc1", inner, h);
    weights.require_linear(name + ".mlp.linear_fc2", h, inner);
  }
  const int64_t square = Qwen3Vision::merge * Qwen3Vision::merge * h;
  const auto require_merger = [&](const std::string& module, int64_t normed) {
    require_norm(module + ".norm", normed);
    weights.require_linear(module + ".linear_fc1", square, square);
    weights.require_linear(module + ".linear_fc2", width, square);
  };
  require_merger(prefix + "merger", h);
  for (size_t i = 0; i < Qwen3Vision::deep_layers(layers).size(); ++i)
    require_merger(prefix + "deepstack_merger_list." + std::to_string(i), square);
}

}  // namespace lora_host::nn
