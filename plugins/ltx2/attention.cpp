// Tables are put together in the graph: of a video one axis has few positions, and all its tokens many.
#include "attention.h"

#include <cmath>
#include <numbers>

#include "nn/mmdit.hpp"

namespace ltx2 {

namespace nn = lora_host::nn;
using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;
using lora_host::Weights;

namespace {

constexpr double theta = 10000.0;

std::vector<float> frequencies(int64_t count) {
  std::vector<float> out;
  for (int64_t k = 0; k < count; ++k) {
    const double step = count > 1 ? static_cast<double>(k) / static_cast<double>(count - 1) : 0;
    out.push_back(static_cast<float>(std::pow(theta, step) * std::numbers::pi / 2));
  }
  return out;
}

// One axis: [n, frequencies]. Angles are products of float32, as the vendor's programs have them.
nn::RopeTables of_axis(Graph& g, const Shares& shares, const std::vector<float>& frequencies) {
  nn::RopeAngles angles;
  for (const float share : shares)
    for (const float frequency : frequencies) angles.add(static_cast<double>((share * 2 - 1) * frequency));
  return angles.tables(g, {static_cast<int64_t>(shares.size()), static_cast<int64_t>(frequencies.size())});
}

// Tables [n, f] of each axis -> [n0 n1 ... , h/2]; `at_zero` is what an angle of 0 gives.
Value all_positions(Graph& g, const std::vector<Value>& axes, int64_t hidden, float at_zero) {
  const auto count = static_cast<int64_t>(axes.size());
  const int64_t f = g.shape(axes[0])[1];
  Dims grid;
  int64_t tokens = 1;
  for (Value axis : axes) {
    grid.push_back(g.shape(axis)[0]);
    tokens *= grid.back();
  }
  grid.insert(grid.end(), {f, 1});
  std::vector<Value> parts;
  for (size_t a = 0; a < axes.size(); ++a) {
    Dims own(grid.size(), 1);
    own[a] = grid[a];
    own[axes.size()] = f;
    parts.push_back(g.expand(g.reshape(axes[a], own), grid));
  }
  Value all = g.reshape(count == 1 ? parts[0] : g.concat(parts, -1), {tokens, f * count});
  if (const int64_t missing = hidden / 2 - f * count; missing > 0) all = g.pad(all, {0, missing}, {0, 0}, at_zero);
  return all;
}

// [n, h/2] -> [n each heads, D/2]
Value all_heads(Graph& g, Value all, int64_t head, int64_t each) {
  const Dims d = g.shape(all);
  if (each > 1) all = g.expand(g.reshape(all, {d[0], 1, d[1]}), {d[0], each, d[1]});
  return g.reshape(all, {d[0] * each * 2 * d[1] / head, head / 2});
}

Value rotated(Graph& g, Value x, int64_t head, const nn::RopeTables& rope) {
  const Dims d = g.shape(x);  // [B, S, h]
  if (rope.cos) x = g.rope(g.reshape(x, {d[0], d[1] * d[2] / head, 1, head}), rope.cos, rope.sin, false);
  return g.reshape(x, {d[0], d[1], d[2] / head, head});
}

}  // namespace

nn::RopeTables rope_tables(Graph& g, const std::vector<Shares>& axes, int64_t hidden, int64_t head, int64_t each) {
  const std::vector<float> turns = frequencies(hidden / (2 * static_cast<int64_t>(axes.size())));
  std::vector<Value> cosines, sines;
  for (const Shares& axis : axes) {
    const nn::RopeTables tables = of_axis(g, axis, turns);
    cosines.push_back(tables.cos);
    sines.push_back(tables.sin);
  }
  const auto tables = [&](const std::vector<Value>& of, float at_zero) {
    return all_heads(g, all_positions(g, of, hidden, at_zero), head, each);
  };
  Value cos = tables(cosines, 1);
  return {cos, tables(sines, 0), false};
}

Value attention(Graph& g, const std::string& module, int64_t head, Value x, Value seen, const nn::RopeTables& rope,
                const nn::RopeTables& seen_rope) {
  Value q = rotated(g, g.rms_norm(g.linear(x, module + ".to_q"), module + ".q_norm", eps), head, rope);
  Value k = rotated(g, g.rms_norm(g.linear(seen, module + ".to_k"), module + ".k_norm", eps), head, seen_rope);
  Value v = nn::split_heads(g, g.linear(seen, module + ".to_v"), head);
  Value y = g.attention(q, k, v, 1 / std::sqrt(static_cast<double>(head)));
  if (g.weights().has(module + ".to_gate_logits.weight")) {
    const Dims d = g.shape(y);  // [B, S, H, D]
    Value gates = g.affine(g.sigmoid(g.linear(x, module + ".to_gate_logits")), 2);
    y = g.mul(y, g.reshape(gates, {d[0], d[1], d[2], 1}));
  }
  return g.linear(nn::merge_heads(g, y), module + ".to_out.0");
}

void require_attention(const Weights& w, const std::string& module, const AttentionSize& size) {
  w.require_linear(module + ".to_q", size.inner, size.hidden);
  w.require_linear(module + ".to_k", size.inner, size.seen);
  w.require_linear(module + ".to_v", size.inner, size.seen);
  w.require_linear(module + ".to_out.0", size.hidden, size.inner);
  for (const char* norm : {".q_norm.weight", ".k_norm.weight"}) w.require(module + norm, {size.inner});
  if (w.has(module + ".to_gate_logits.weight"))
    w.require_linear(module + ".to_gate_logits", size.inner / size.head, size.hidden);
}

Value feed_forward(Graph& g, const std::string& module, Value x) {
  return nn::mlp(g, x, module + ".net.0.proj", module + ".net.2");
}

void require_feed_forward(const Weights& w, const std::string& module, int64_t hidden, bool bias) {
  const int64_t inner = w.require(module + ".net.0.proj.weight", {-1, hidden})[0];
  w.require_linear(module + ".net.0.proj", inner, hidden, bias);
  w.require_linear(module + ".net.2", hidden, inner, bias);
}

}  // namespace ltx2
