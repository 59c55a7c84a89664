// Convolutions along time of signals [B, T, C], in float32 whatever the host computes in: what a vocoder is made of.
// Weights are [O, I, K] as in files, of transposed convolutions [I, O, K]; what is beyond both ends is zeros.
//
// All are two-dimensional convolutions in disguise. A dilated one looks at every n-th place: laid out in rows of n it
// looks straight down. A transposed one gives `stride` places for each: an ordinary one with as many times the outputs,
// whose weight is the transposed one's, cut into pieces of `stride` and turned around.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lora_host/lora_host.hpp"

namespace lora_host::nn {

inline Value float_param(Graph& g, const std::string& name) { return g.cast(g.param(name), LH_F32); }

// x [B, T, ...] with its first place `before` times more in front, and its last one `after` times behind.
inline Value with_ends_repeated(Graph& g, Value x, int64_t before, int64_t after) {
  Dims first = g.shape(x), last = first;
  const Value begin = g.slice(x, 1, 0, 1), end = g.slice(x, 1, first[1] - 1, 1);
  first[1] = before, last[1] = after;
  return g.concat({g.expand(begin, first), x, g.expand(end, last)}, 1);
}

// [B, T, I] -> [B, T, O]; the kernel is odd, and sees as far back as forward.
inline Value conv1d(Graph& g, Value x, const std::string& module, int64_t dilation = 1) {
  const Dims d = g.shape(x);
  Value weight = float_param(g, module + ".weight");
  const Dims w = g.shape(weight);
  const Value bias = g.weights().has(module + ".bias") ? float_param(g, module + ".bias") : Value{};
  const int64_t rows = (d[1] + dilation - 1) / dilation, reach = w[2] / 2;
  if (rows * dilation > d[1]) x = g.pad(x, {0, 0, 0}, {0, rows * dilation - d[1], 0});
  x = g.conv2d(g.reshape(x, {d[0], rows, dilation, d[2]}), g.reshape(weight, {w[0], w[1], w[2], 1}), bias, 1,
               {reach, 0, reach, 0});
  x = g.reshape(x, {d[0], rows * dilation, w[0]});
  return rows * dilation > d[1] ? g.slice(x, 1, 0, d[1]) : x;
}

// A transposed convolution as an ordinary one: weight [stride O, I, taps, 1], the stride the slowest of the outputs,
// and how many places it sees before and behind its own.
struct Phases {
  Value weight;
  int64_t before, after;
};

// weight [I, O, K], of which `padding` places are cut off at both ends of the output.
inline Phases phases(Graph& g, Value weight, int64_t stride, int64_t padding) {
  const Dims w = g.shape(weight);
  const int64_t before = (w[2] - 1 - padding) / stride, after = (padding + stride - 1) / stride;
  const int64_t taps = before + after + 1, lead = stride * after - padding;
  weight = g.pad(weight, {0, 0, lead}, {0, 0, taps * stride - lead - w[2]});
  weight = g.reshape(weight, {w[0], w[1], taps, stride});
  std::vector<Value> turned = g.split(weight, 2, std::vector<int64_t>(static_cast<size_t>(taps), 1));
  std::reverse(turned.begin(), turned.end());
  weight = g.permute(taps > 1 ? g.concat(turned, 2) : weight, {3, 1, 0, 2});
  return {g.reshape(weight, {stride * w[1], w[0], taps, 1}), before, after};
}

// [B, T, I] -> [B, stride T, O], with (K - stride) / 2 places cut off at both ends.
inline Value conv_transpose1d(Graph& g, Value x, const std::string& module, int64_t stride) {
  const Dims d = g.shape(x);
  Value weight = float_param(g, module + ".weight");
  const Dims w = g.shape(weight);
  const Phases p = phases(g, weight, stride, (w[2] - stride) / 2);
  x = g.conv2d(g.reshape(x, {d[0], d[1], 1, d[2]}), p.weight, {}, 1, {p.before, 0, p.after, 0});
  x = g.reshape(x, {d[0], d[1] * stride, w[1]});
  return g.weights().has(module + ".bias") ? g.add(x, float_param(g, module + ".bias")) : x;
}

// Each channel alone through one filter, the ends repeated: x [B, T, C], filter [1, 1, K] -> [B, T, C, ratio], the
// places between a place and the next; multiplied by ratio, which is what zeros between them take away.
inline Value between(Graph& g, Value x, Value filter, int64_t ratio) {
  const Dims d = g.shape(x);
  const Phases p = phases(g, g.affine(filter, static_cast<double>(ratio)), ratio, (g.shape(filter)[2] - 1) / 2);
  x = with_ends_repeated(g, x, p.before, p.after);
  return g.conv2d(g.reshape(x, {d[0], d[1] + p.before + p.after, d[2], 1}), p.weight);
}

}  // namespace lora_host::nn
