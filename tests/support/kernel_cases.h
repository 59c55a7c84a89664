// The cases of kernels_test.cpp: for every differentiable operation of liblora_kernels its shapes, its float64
// reference and the calls of the kernels.
#pragma once

#include <algorithm>
#include <functional>

#include "support/kernel_tensors.h"
#include "support/reference/attention.h"
#include "support/reference/elementwise.h"
#include "support/reference/products.h"
#include "support/reference/rows.h"

namespace lk_test {

using Inputs = std::vector<Values>;
using Views = std::vector<lk_tensor>;

struct Case {
  std::string name;
  std::vector<Shape> inputs;
  Shape output;
  int64_t depth;  // the longest sum behind one element of a result or gradient
  std::function<Values(const Inputs&)> reference;
  // What an element of an input changes, as `reference` gives it, all else being 0. Given where that is a small part of
  // the work, as differences need it twice for every element.
  std::function<Values(const Inputs&, size_t input, size_t element)> changed = {};
  std::function<lk_status(lk_context*, const Views& in, lk_tensor out)> forward;
  // grads[i] has no data where input i has no gradient
  std::function<lk_status(lk_context*, const Views& in, lk_tensor out, lk_tensor dy, const Views& grads)> backward;
  std::vector<bool> differentiable;
  double low = -1.0, high = 1.0;
  // Intermediates that a plain implementation stores in the tensors' type (attention: scores and weights; LoRA: the two
  // factors' products; a bias added to a finished product). The library may round as often, no more.
  int inner = 0;
};

// The kernel library's params structs have the views in different places; a case fills its own.
template <class Params>
lk_status call(lk_status (*function)(lk_context*, const Params*), lk_context* context, const Params& p) {
  return function(context, &p);
}

inline Case linear_case(int64_t rows, int64_t in, int64_t out) {
  Case c;
  c.inner = 1;
  c.name = "linear";
  c.inputs = {{rows, in}, {out, in}, {out}};
  c.output = {rows, out};
  c.depth = std::max({rows, in, out});
  c.reference = [=](const Inputs& v) { return reference::linear(v[0], v[1], v[2], in, out); };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_linear, context, {.x = in[0], .weight = in[1], .bias = in[2], .y = y});
  };
  c.backward = [](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_linear_backward, context,
                {.dy = dy, .x = in[0], .weight = in[1], .dx = g[0], .dweight = g[1], .dbias = g[2]});
  };
  c.differentiable = {true, true, true};
  return c;
}

// residual: y is added to one more input.
inline Case lora_case(int64_t rows, int64_t in, int64_t out, int64_t rank, bool residual = false) {
  Case c;
  c.inner = residual ? 3 : 2;
  c.name = residual ? "lora_added" : "lora";
  c.inputs = {{rows, in}, {out, in}, {rank, in}, {out, rank}, {rows, rank}};
  if (residual) c.inputs.push_back({rows, out});
  c.output = {rows, out};
  c.depth = std::max({rows, in, out});
  constexpr double scale = 0.5;
  const reference::Lora law{in, out, rank, scale};
  c.reference = [=](const Inputs& v) {
    Values y = reference::lora(law, v[0], v[1], v[2], v[3], v[4]);
    for (size_t i = 0; residual && i < y.size(); ++i) y[i] += v[5][i];
    return y;
  };
  c.changed = [=](const Inputs& v, size_t input, size_t element) {
    if (input != 0) return reference::lora(law, v[0], {}, v[2], v[3], v[4]);  // a factor is not in x weight^T
    const auto row = static_cast<int64_t>(element) / in;
    const auto of_row = [&](const Values& all, int64_t n) {
      return Values(all.begin() + row * n, all.begin() + (row + 1) * n);
    };
    Values y(static_cast<size_t>(rows * out));
    std::ranges::copy(reference::lora(law, of_row(v[0], in), v[1], v[2], v[3], of_row(v[4], rank)),
                      y.begin() + row * out);
    return y;
  };
  c.forward = [=](lk_context* context, const Views& in_views, lk_tensor y) {
    Tensor s({rows, rank}, LK_F32);
    return call(lk_lora_forward, context,
                {.x = in_views[0],
                 .weight = in_views[1],
                 .down = in_views[2],
                 .up = in_views[3],
                 .mask = in_views[4],
                 .scale = scale,
                 .y = y,
                 .s = s.view(),
                 .added = residual ? in_views[5] : lk_tensor{}});
  };
  c.backward = [](lk_context* context, const Views& in_views, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_lora_backward, context,
                {.dy = dy,
                 .x = in_views[0],
                 .weight = in_views[1],
                 .down = in_views[2],
                 .up = in_views[3],
                 .mask = in_views[4],
                 .scale = scale,
                 .accumulate = 0,
                 .dx = g[0],
                 .ddown = g[2],
                 .dup = g[3]});
  };
  c.differentiable = {true, false, true, true, false};
  if (residual) c.differentiable.push_back(false);  // it is dy
  return c;
}

// One more row of padding below than above.
inline Case conv_case(int64_t n, int64_t h, int64_t w, int64_t ch, int64_t o, int64_t k, int32_t stride, int32_t pad,
                      int32_t groups = 1) {
  const reference::Convolution law{{n, h, w, ch},  o,      {k, k}, {stride, stride}, {pad, pad},
                                   {pad + 1, pad}, groups, true};
  Case c;
  c.inner = 1;
  c.name = "conv2d";
  c.inputs = {law.x, law.weight(), {o}};
  c.output = law.y();
  c.depth = std::max(k * k * std::max(ch, o), count_of(law.y()) / o);
  c.reference = [=](const Inputs& v) { return reference::convolution(law, v[0], v[1], v[2]); };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_conv2d, context,
                {.x = in[0],
                 .weight = in[1],
                 .bias = in[2],
                 .y = y,
                 .stride = stride,
                 .pad_top = pad,
                 .pad_left = pad,
                 .pad_bottom = pad + 1,
                 .pad_right = pad,
                 .groups = groups});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_conv2d_backward, context,
                {.dy = dy,
                 .x = in[0],
                 .weight = in[1],
                 .dx = g[0],
                 .dweight = g[1],
                 .dbias = g[2],
                 .stride = stride,
                 .pad_top = pad,
                 .pad_left = pad,
                 .pad_bottom = pad + 1,
                 .pad_right = pad,
                 .groups = groups});
  };
  c.differentiable = {true, true, true};
  return c;
}

// `front` frames of padding before and none behind, a row above and below, a column on the right.
inline Case conv3d_case(const Shape& x, int64_t o, const Shape& kernel, int32_t stride, int32_t front) {
  const int64_t s = stride;
  const reference::Convolution law{x, o, kernel, {s, 1, s}, {front, 1, 0}, {0, 1, 1}, 1, true};
  Case c;
  c.inner = 1;
  c.name = "conv3d";
  c.inputs = {law.x, law.weight(), {o}};
  c.output = law.y();
  c.depth = std::max(count_of(kernel) * std::max(x.back(), o), count_of(law.y()) / o);
  c.reference = [=](const Inputs& v) { return reference::convolution(law, v[0], v[1], v[2]); };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_conv3d, context,
                {.x = in[0],
                 .weight = in[1],
                 .bias = in[2],
                 .y = y,
                 .stride = {stride, 1, stride},
                 .pad = {front, 0, 1, 1, 0, 1}});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_conv3d_backward, context,
                {.dy = dy,
                 .x = in[0],
                 .weight = in[1],
                 .dx = g[0],
                 .dweight = g[1],
                 .dbias = g[2],
                 .stride = {stride, 1, stride},
                 .pad = {front, 0, 1, 1, 0, 1}});
  };
  c.differentiable = {true, true, true};
  return c;
}

struct AttentionCase {
  int64_t b, sq, sk, h, d;
  int64_t key_heads = 0;  // 0: as many as heads
  bool bias = false;      // of one head and batch
  bool causal = false;
  bool lengths = false;  // the last batch entry sees no key
  bool mask = false;     // another one in each batch entry; the last of several sees no key
  double soft_cap = 0;

  int64_t length(int64_t batch) const { return !lengths ? sk : batch == b - 1 ? 0 : std::min<int64_t>(sk, 5); }
  bool masked(int64_t batch, int64_t key) const {
    return mask && ((key * 7 + batch * 3) % 5 > 2 || (b > 1 && batch == b - 1));
  }
  bool seen(int64_t batch, int64_t query, int64_t key) const {
    return key < length(batch) && !(causal && key > query) && !masked(batch, key);
  }
  int64_t group() const { return h / key_heads; }
};

// The optional inputs of a case in memory.
struct AttentionMasks {
  Tensor lengths, mask;

  explicit AttentionMasks(const AttentionCase& a) : lengths({a.b}, LK_I32), mask({a.b, a.sk}, LK_I32) {
    std::vector<int32_t> length, seen;
    for (int64_t i = 0; i < a.b; ++i) {
      length.push_back(static_cast<int32_t>(a.length(i)));
      for (int64_t j = 0; j < a.sk; ++j) seen.push_back(a.masked(i, j) ? 0 : 1);
    }
    lengths.write(length.data(), 0, a.b * static_cast<int64_t>(sizeof(int32_t)));
    mask.write(seen.data(), 0, a.b * a.sk * static_cast<int64_t>(sizeof(int32_t)));
  }
  lk_tensor lengths_of(const AttentionCase& a) const { return a.lengths ? lengths.view() : lk_tensor{}; }
  lk_tensor mask_of(const AttentionCase& a) const { return a.mask ? mask.view() : lk_tensor{}; }
};

// The forward pass that `p` describes, and then the backward pass if `p` has outputs for it.
inline lk_status run_attention(lk_context* context, const lk_attention_backward_params& p) {
  const lk_status status = call(lk_attention, context,
                                {.q = p.q,
                                 .k = p.k,
                                 .v = p.v,
                                 .bias = p.bias,
                                 .key_lengths = p.key_lengths,
                                 .key_mask = p.key_mask,
                                 .scale = p.scale,
                                 .soft_cap = p.soft_cap,
                                 .causal = p.causal,
                                 .o = p.o,
                                 .lse = p.lse});
  return status != LK_OK || p.dq.data == nullptr ? status : call(lk_attention_backward, context, p);
}

inline Case attention_case(AttentionCase a) {
  if (a.key_heads == 0) a.key_heads = a.h;
  Case c;
  // Gradients of k and v are rounded once for each head before they are added up over a group.
  c.inner = a.key_heads < a.h ? 3 : 2;
  c.name = "attention of " + std::to_string(a.sq) + " x " + std::to_string(a.sk) + ", heads " + std::to_string(a.h) +
           "/" + std::to_string(a.key_heads) + (a.bias ? " bias" : "") + (a.causal ? " causal" : "") +
           (a.lengths ? " lengths" : "") + (a.mask ? " mask" : "") + (a.soft_cap > 0 ? " cap" : "");
  const Shape keys{a.b, a.sk, a.key_heads, a.d};
  c.inputs = {{a.b, a.sq, a.h, a.d}, keys, keys, {1, 1, a.sq, a.sk}};
  c.output = c.inputs[0];
  c.depth = std::max({a.sq * a.group(), a.sk, a.d});
  constexpr double scale = 0.75;
  const reference::Attention law{
      a.b, a.sq, a.sk, a.h, a.key_heads, a.d, scale, a.soft_cap, a.bias ? c.inputs[3] : Shape{}};
  c.reference = [=](const Inputs& v) {
    return reference::attention(law, v[0], v[1], v[2], v[3],
                                [&](int64_t batch, int64_t i, int64_t j) { return a.seen(batch, i, j); });
  };
  const auto params = [=](const Views& in, const AttentionMasks& masks, lk_tensor o, lk_tensor lse) {
    lk_attention_backward_params p{};
    p.q = in[0], p.k = in[1], p.v = in[2], p.o = o, p.lse = lse;
    if (a.bias) p.bias = in[3];
    p.key_lengths = masks.lengths_of(a), p.key_mask = masks.mask_of(a);
    p.scale = scale, p.soft_cap = static_cast<float>(a.soft_cap), p.causal = a.causal;
    return p;
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    const AttentionMasks masks(a);
    return run_attention(context, params(in, masks, y, {}));
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    const AttentionMasks masks(a);
    const Tensor lse({a.b, a.h, a.sq}, LK_F32), o({a.b, a.sq, a.h, a.d}, LK_F32);
    lk_attention_backward_params p = params(in, masks, o.view(), lse.view());
    p.d_o = dy, p.dq = g[0], p.dk = g[1], p.dv = g[2];
    return run_attention(context, p);
  };
  c.differentiable = {true, true, true, false};
  return c;
}

inline Case softmax_case(int64_t rows, int64_t cols) {
  Case c;
  c.name = "softmax";
  c.inputs = {{rows, cols}};
  c.output = {rows, cols};
  c.depth = cols;
  c.low = -8;
  c.high = 8;
  c.reference = [=](const Inputs& v) { return reference::softmax(v[0], cols); };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_softmax, context, {.x = in[0], .y = y});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    Tensor y({rows, cols}, LK_F32);  // the stored result of a 16-bit run would bring its own rounding
    if (const lk_status status = call(lk_softmax, context, {.x = in[0], .y = y.view()}); status != LK_OK) return status;
    return call(lk_softmax_backward, context, {.dy = dy, .y = y.view(), .dx = g[0]});
  };
  c.differentiable = {true};
  return c;
}

// kind: 0 layer norm, 1 RMS norm, otherwise group norm in `kind` groups; x [n, pixels, channels].
inline Case norm_case(int64_t n, int64_t pixels, int64_t channels, int32_t kind) {
  Case c;
  c.name = kind == 0 ? "layer_norm" : kind == 1 ? "rms_norm" : "group_norm";
  c.inputs = {{n, pixels, channels}, {channels}, {channels}};
  c.output = {n, pixels, channels};
  c.depth = n * pixels * channels;
  c.low = -1;
  c.high = 2;
  constexpr double eps = 1e-5;
  constexpr float float_eps = 1e-5f;
  const reference::Norm law{c.output, eps, kind != 1, kind <= 1 ? 0 : kind};
  c.reference = [=](const Inputs& v) { return reference::norm(law, v[0], v[1], kind == 1 ? Values{} : v[2]); };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    if (kind == 0)
      return call(lk_layer_norm, context, {.x = in[0], .weight = in[1], .bias = in[2], .y = y, .eps = float_eps});
    if (kind == 1) return call(lk_rms_norm, context, {.x = in[0], .weight = in[1], .y = y, .eps = float_eps});
    return call(lk_group_norm, context,
                {.x = in[0], .weight = in[1], .bias = in[2], .y = y, .groups = kind, .eps = float_eps});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    if (kind == 0)
      return call(
          lk_layer_norm_backward, context,
          {.dy = dy, .x = in[0], .weight = in[1], .eps = float_eps, .dx = g[0], .dweight = g[1], .dbias = g[2]});
    if (kind == 1)
      return call(lk_rms_norm_backward, context,
                  {.dy = dy, .x = in[0], .weight = in[1], .eps = float_eps, .dx = g[0], .dweight = g[1]});
    return call(lk_group_norm_backward, context,
                {.dy = dy,
                 .x = in[0],
                 .weight = in[1],
                 .groups = kind,
                 .eps = float_eps,
                 .dx = g[0],
                 .dweight = g[1],
                 .dbias = g[2]});
  };
  c.differentiable = {true, true, kind != 1};
  return c;
}

// Tables of angles for a rotation, which are float32 whatever the rest is.
struct Angles {
  Values cosines, sines;
  Tensor cos, sin;

  explicit Angles(const reference::Rope& law) : cos(law.table(), LK_F32), sin(law.table(), LK_F32) {
    std::vector<float> c, s;
    for (int64_t i = 0; i < count_of(law.table()); ++i) {
      const double angle = 0.7 * static_cast<double>(i % 1009);
      c.push_back(static_cast<float>(std::cos(angle)));
      s.push_back(static_cast<float>(std::sin(angle)));
    }
    const auto bytes = static_cast<int64_t>(c.size() * sizeof(float));
    cos.write(c.data(), 0, bytes);
    sin.write(s.data(), 0, bytes);
    cosines.assign(c.begin(), c.end());
    sines.assign(s.begin(), s.end());
  }
};

// x [B, S, H, D]; the weight has no gradient.
inline Case rms_norm_rope_case(const reference::Rope& turn, bool weight = true) {
  Case c;
  c.name = std::string("rms_norm_rope of ") + (turn.interleaved ? "neighbours" : "halves") + ", width " +
           std::to_string(turn.x[3]) + (turn.own_tables ? ", tables for each image" : "");
  c.inputs = {turn.x, {turn.x[3]}};
  c.output = turn.x;
  c.depth = turn.x[3];
  c.low = -1;
  c.high = 2;
  constexpr float eps = 1e-5f;
  const reference::Norm law{turn.x, static_cast<double>(eps), false};
  const auto angles = std::make_shared<const Angles>(turn);
  c.reference = [=](const Inputs& v) {
    return reference::rope(turn, reference::norm(law, v[0], weight ? v[1] : Values{}, {}), angles->cosines,
                           angles->sines);
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_rms_norm_rope, context,
                {.x = in[0],
                 .weight = weight ? in[1] : lk_tensor{},
                 .cos = angles->cos.view(),
                 .sin = angles->sin.view(),
                 .y = y,
                 .eps = eps,
                 .interleaved = turn.interleaved});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_rms_norm_rope_backward, context,
                {.dy = dy,
                 .x = in[0],
                 .weight = weight ? in[1] : lk_tensor{},
                 .cos = angles->cos.view(),
                 .sin = angles->sin.view(),
                 .eps = eps,
                 .interleaved = turn.interleaved,
                 .dx = g[0]});
  };
  c.differentiable = {true, false};
  return c;
}

// x [images, length, channels]; scale and shift are given in the two shapes that a row for each image may have.
inline Case modulated_norm_case(int64_t images, int64_t length, int64_t channels) {
  Case c;
  c.name = "modulated_norm";
  c.inputs = {{images, length, channels}, {images, channels}, {images, 1, channels}};
  c.output = {images, length, channels};
  c.depth = length * channels;
  c.low = -1;
  c.high = 2;
  constexpr float eps = 1e-5f;
  c.reference = [=](const Inputs& v) {
    return reference::modulated_norm({{images, length, channels}, static_cast<double>(eps)}, v[0], {}, v[1], v[2]);
  };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_modulated_norm, context, {.x = in[0], .scale = in[1], .shift = in[2], .y = y, .eps = eps});
  };
  c.backward = [](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_modulated_norm_backward, context,
                {.dy = dy, .x = in[0], .scale = in[1], .eps = eps, .dx = g[0], .dscale = g[1], .dshift = g[2]});
  };
  c.differentiable = {true, true, true};
  return c;
}

inline Case gated_residual_case(int64_t images, int64_t length, int64_t channels) {
  Case c;
  c.name = "gated_residual";
  c.inputs = {{images, length, channels}, {images, channels}, {images, length, channels}};
  c.output = {images, length, channels};
  c.depth = length;
  c.reference = [=](const Inputs& v) {
    return reference::gated_residual({images, length, channels}, v[0], v[1], v[2]);
  };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_gated_residual, context, {.x = in[0], .gate = in[1], .z = in[2], .y = y});
  };
  c.backward = [](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_gated_residual_backward, context, {.dy = dy, .gate = in[1], .z = in[2], .dz = g[2], .dgate = g[1]});
  };
  c.differentiable = {false, true, true};  // the gradient of x is dy itself
  return c;
}

// What an rms norm in another operation has besides.
struct NormParts {
  bool weight = true, shift = true;
};

// The two operations with rms_norm; the weight has no gradient.
inline Case modulated_rms_case(int64_t images, int64_t length, int64_t channels, NormParts parts = {}) {
  Case c = modulated_norm_case(images, length, channels);
  c.name = "modulated_norm with rms";
  c.inputs.push_back({channels});
  constexpr float eps = 1e-5f;
  const reference::Norm law{c.output, static_cast<double>(eps), false};
  const auto given = [](bool there, const lk_tensor& tensor) { return there ? tensor : lk_tensor{}; };
  c.reference = [=](const Inputs& v) {
    return reference::modulated_norm(law, v[0], parts.weight ? v[3] : Values{}, v[1], parts.shift ? v[2] : Values{});
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_modulated_norm, context,
                {.x = in[0],
                 .scale = in[1],
                 .shift = given(parts.shift, in[2]),
                 .y = y,
                 .eps = eps,
                 .rms = 1,
                 .weight = given(parts.weight, in[3])});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_modulated_norm_backward, context,
                {.dy = dy,
                 .x = in[0],
                 .scale = in[1],
                 .eps = eps,
                 .dx = g[0],
                 .dscale = g[1],
                 .dshift = g[2],
                 .rms = 1,
                 .weight = given(parts.weight, in[3])});
  };
  c.differentiable = {true, true, parts.shift, false};
  return c;
}

inline Case normed_residual_case(int64_t images, int64_t length, int64_t channels, bool weight = true) {
  Case c = gated_residual_case(images, length, channels);
  c.name = "gated_residual with rms";
  c.inputs.push_back({channels});
  c.depth = length * channels;
  constexpr float eps = 1e-5f;
  const reference::Norm law{c.output, static_cast<double>(eps), false};
  c.reference = [=](const Inputs& v) {
    return reference::gated_residual(law.dims, v[0], v[1], reference::norm(law, v[2], weight ? v[3] : Values{}, {}));
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(
        lk_gated_residual, context,
        {.x = in[0], .gate = in[1], .z = in[2], .y = y, .rms = 1, .eps = eps, .weight = weight ? in[3] : lk_tensor{}});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_gated_residual_backward, context,
                {.dy = dy,
                 .gate = in[1],
                 .z = in[2],
                 .dz = g[2],
                 .dgate = g[1],
                 .rms = 1,
                 .eps = eps,
                 .weight = weight ? in[3] : lk_tensor{}});
  };
  c.differentiable.push_back(false);
  return c;
}

// With the gradients of `da` and `db` only.
inline Case gated_activation_case(lk_unary_kind kind, int64_t rows, int64_t cols, bool da = true, bool db = true) {
  Case c;
  c.inner = 1;
  c.name = "gated_activation " + std::to_string(kind);
  c.inputs = {{rows, cols}, {rows, cols}};
  c.output = {rows, cols};
  c.depth = 4;
  c.low = -6;
  c.high = 6;
  c.reference = [=](const Inputs& v) { return reference::gated_activation(kind, v[0], v[1]); };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_gated_activation, context, {.kind = kind, .a = in[0], .b = in[1], .y = y});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_gated_activation_backward, context,
                {.kind = kind, .dy = dy, .a = in[0], .b = da ? in[1] : lk_tensor{}, .da = g[0], .db = g[1]});
  };
  c.differentiable = {da, db};
  return c;
}

inline Case unary_case(lk_unary_kind kind, int64_t count) {
  Case c;
  c.name = "unary " + std::to_string(kind);
  c.inputs = {{count}};
  c.output = {count};
  c.depth = 4;
  const bool positive = kind == LK_SQRT || kind == LK_RSQRT || kind == LK_LOG;
  c.low = positive ? 0.25 : -6;
  c.high = 6;
  // Ends of the clamp that no 16-bit value meets: differences across a corner have no limit.
  const float a = kind == LK_CLAMP ? -1.2345678f : 1.5f, b = kind == LK_CLAMP ? 2.3456789f : -0.25f;
  c.reference = [=](const Inputs& v) { return reference::unary(kind, a, b, v[0]); };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_unary, context, {.kind = kind, .a = a, .b = b, .x = in[0], .y = y});
  };
  // 16-bit values lie on the steps of these, where differences have no limit.
  const bool steps = kind == LK_FLOOR || kind == LK_CEIL || kind == LK_ROUND;
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return steps ? LK_OK
                 : call(lk_unary_backward, context, {.kind = kind, .a = a, .b = b, .dy = dy, .x = in[0], .dx = g[0]});
  };
  c.differentiable = {!steps};
  return c;
}

// What a loss is weighed by: each sample, or each place of `channels` elements, which also has widths by sample then.
enum class LossWeights { sample, place };

inline Case loss_case(lk_loss_kind kind, int64_t batch, int64_t places, int64_t channels, LossWeights by) {
  static constexpr const char* names[] = {"mse", "huber", "l1", "pseudo_huber"};
  Case c;
  c.name = names[kind] + std::string(by == LossWeights::place ? " by place" : " by sample");
  c.inputs = {{batch, places, channels}, {batch, places, channels}};
  c.output = {1};
  c.depth = 4;
  c.low = -2;
  c.high = 2;
  constexpr float delta = 0.7654321f;
  const bool by_place = by == LossWeights::place;
  const int64_t count = by_place ? batch * places : batch;
  const auto weight_of = [](int64_t i) { return 1.0f + static_cast<float>(i % 7); };
  const auto delta_of = [](int64_t i) { return 0.25f + static_cast<float>(i) / 4; };
  c.reference = [=](const Inputs& v) {
    Values weight, deltas;
    for (int64_t i = 0; i < count; ++i) weight.push_back(static_cast<double>(weight_of(i)));
    for (int64_t i = 0; i < batch; ++i) deltas.push_back(static_cast<double>(by_place ? delta_of(i) : delta));
    return Values{reference::loss(kind, deltas, v[0], v[1], weight)};
  };
  // The two tensors of a call, which outlive it.
  const auto weigh = [=](auto& params, Tensor& weight, Tensor& deltas) {
    for (int64_t i = 0; i < count; ++i) weight.put(i, weight_of(i));
    for (int64_t i = 0; i < batch; ++i) deltas.put(i, delta_of(i));
    params.weight = weight.view();
    if (by_place) params.deltas = deltas.view();
  };
  const std::vector<int64_t> shape = by_place ? std::vector<int64_t>{batch, places, 1} : std::vector<int64_t>{batch};
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    Tensor weight(shape, LK_F32), deltas({batch}, LK_F32);
    y.dtype = LK_F32;
    lk_loss_params params{.kind = kind, .delta = delta, .prediction = in[0], .target = in[1], .loss = y};
    weigh(params, weight, deltas);
    return call(lk_loss, context, params);
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    Tensor weight(shape, LK_F32), deltas({batch}, LK_F32), dloss({1}, LK_F32);
    dloss.store(context, {Values(1, 1.0)});
    (void)dy;
    lk_loss_backward_params params{
        .kind = kind, .delta = delta, .dloss = dloss.view(), .prediction = in[0], .target = in[1], .dprediction = g[0]};
    weigh(params, weight, deltas);
    return call(lk_loss_backward, context, params);
  };
  c.differentiable = {true, false};
  return c;
}

inline std::vector<Case> all_cases() {
  std::vector<Case> cases = {linear_case(1, 31, 33),
                             linear_case(33, 257, 31),
                             linear_case(257, 64, 65),
                             lora_case(1, 33, 31, 4),
                             lora_case(65, 33, 129, 5),
                             lora_case(65, 64, 128, 24),
                             lora_case(65, 64, 128, 40),
                             lora_case(300, 1096, 520, 16),  // on CUDA: columns in parts and slices
                             lora_case(2200, 264, 136, 6),   // and many rows to a block
                             lora_case(1, 33, 31, 4, true),
                             lora_case(65, 33, 129, 5, true),
                             lora_case(65, 64, 128, 40, true),
                             lora_case(300, 264, 136, 16, true),
                             conv_case(2, 7, 9, 5, 6, 3, 1, 1),
                             conv_case(1, 9, 8, 3, 4, 3, 2, 0),
                             conv_case(1, 33, 31, 4, 5, 1, 1, 0),
                             conv_case(2, 9, 7, 2, 3, 1, 2, 0),
                             conv_case(1, 6, 5, 3, 2, 4, 3, 2),
                             conv_case(2, 7, 9, 6, 9, 3, 1, 1, 3),
                             conv_case(1, 9, 8, 5, 5, 3, 2, 1, 5),
                             conv_case(2, 5, 7, 4, 6, 1, 1, 0, 2),
                             conv3d_case({2, 5, 6, 7, 3}, 4, {3, 3, 3}, 1, 2),
                             conv3d_case({1, 1, 6, 7, 8}, 8, {3, 3, 3}, 1, 2),
                             conv3d_case({2, 5, 4, 6, 3}, 2, {2, 3, 3}, 2, 1),
                             softmax_case(1, 1),
                             softmax_case(33, 257),
                             norm_case(1, 1, 31, 0),
                             norm_case(3, 31, 33, 0),
                             norm_case(3, 31, 33, 1),
                             norm_case(3, 31, 64, 1),  // on CUDA: 8, 16 and 32 lanes of a row
                             norm_case(1, 67, 80, 1),
                             norm_case(2, 9, 200, 1),
                             norm_case(2, 33, 12, 3),
                             norm_case(1, 257, 64, 32),
                             rms_norm_rope_case({{2, 5, 3, 8}, false, true}),
                             rms_norm_rope_case({{2, 5, 3, 6}, true, true}),
                             rms_norm_rope_case({{1, 31, 1, 2}, false, false}),
                             rms_norm_rope_case({{2, 3, 2, 66}, true, false}, false),
                             rms_norm_rope_case({{2, 5, 3, 64}, false, false}),
                             rms_norm_rope_case({{2, 5, 3, 64}, true, false}),
                             rms_norm_rope_case({{1, 9, 19, 200}, true, true}),
                             rms_norm_rope_case({{1, 9, 4, 128}, false, true}),
                             rms_norm_rope_case({{2, 5, 2, 128}, true, false}),
                             rms_norm_rope_case({{2, 3, 2, 40}, true, true}, false),
                             rms_norm_rope_case({{1, 2, 2, 520}, false, true}),
                             modulated_norm_case(1, 1, 31),
                             modulated_norm_case(3, 33, 40),
                             modulated_norm_case(2, 257, 33),
                             gated_residual_case(1, 1, 31),
                             gated_residual_case(3, 33, 40),
                             gated_residual_case(2, 257, 33),
                             modulated_rms_case(1, 1, 31),
                             modulated_rms_case(3, 33, 40, {.shift = false}),
                             modulated_rms_case(2, 65, 33, {.weight = false}),
                             modulated_rms_case(2, 5, 1032, {.shift = false}),  // on CUDA: a row to a block
                             normed_residual_case(1, 1, 31),
                             normed_residual_case(3, 33, 40),
                             normed_residual_case(2, 65, 33, false),
                             normed_residual_case(2, 5, 1032),
                             gated_activation_case(LK_SILU, 33, 257),
                             gated_activation_case(LK_GELU_ERF, 31, 264),
                             gated_activation_case(LK_GELU_TANH, 1, 31),
                             gated_activation_case(LK_SILU, 3, 40, true, false),
                             gated_activation_case(LK_GELU_TANH, 3, 33, false, true),
                             loss_case(LK_MSE, 3, 257, 1, LossWeights::sample),
                             loss_case(LK_HUBER, 3, 257, 1, LossWeights::sample),
                             loss_case(LK_L1, 3, 31, 7, LossWeights::sample),
                             loss_case(LK_PSEUDO_HUBER, 3, 31, 7, LossWeights::sample),
                             loss_case(LK_MSE, 2, 33, 16, LossWeights::place),
                             loss_case(LK_L1, 2, 33, 5, LossWeights::place),
                             loss_case(LK_HUBER, 2, 1500, 3, LossWeights::place),
                             loss_case(LK_PSEUDO_HUBER, 2, 33, 5, LossWeights::place)};
  for (AttentionCase a : {AttentionCase{2, 33, 31, 3, 8}, AttentionCase{1, 1, 1, 1, 1}}) {
    cases.push_back(attention_case(a));
    for (bool AttentionCase::*const kind : {&AttentionCase::bias, &AttentionCase::causal, &AttentionCase::lengths}) {
      AttentionCase with = a;
      with.*kind = true;
      cases.push_back(attention_case(with));
    }
  }
  cases.push_back(attention_case({1, 129, 257, 1, 16}));
  // Multiples of 8 in width: a GPU may have kernels of their own for these.
  cases.push_back(attention_case({.b = 2, .sq = 33, .sk = 65, .h = 4, .d = 32, .key_heads = 2}));
  cases.push_back(attention_case({.b = 2, .sq = 65, .sk = 65, .h = 2, .d = 32, .causal = true}));
  cases.push_back(attention_case({.b = 1, .sq = 129, .sk = 129, .h = 2, .d = 16, .key_heads = 1, .causal = true}));
  cases.push_back(
      attention_case({.b = 3, .sq = 65, .sk = 65, .h = 4, .d = 16, .key_heads = 2, .causal = true, .lengths = true}));
  cases.push_back(attention_case({.b = 2, .sq = 70, .sk = 130, .h = 2, .d = 40, .bias = true}));
  cases.push_back(attention_case({.b = 3, .sq = 33, .sk = 65, .h = 2, .d = 32, .mask = true}));
  cases.push_back(attention_case({.b = 3, .sq = 33, .sk = 300, .h = 4, .d = 16, .key_heads = 1, .mask = true}));
  cases.push_back(
      attention_case({.b = 2, .sq = 7, .sk = 33, .h = 2, .d = 8, .causal = true, .lengths = true, .mask = true}));
  cases.push_back(attention_case({.b = 2, .sq = 33, .sk = 31, .h = 4, .d = 8, .key_heads = 2, .soft_cap = 1.5}));
  for (lk_unary_kind kind = LK_SILU; kind <= LK_ROUND; ++kind) cases.push_back(unary_case(kind, 257));
  return cases;
}

}  // namespace lk_test
