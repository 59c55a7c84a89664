// The cases of kernels_test.cpp: for every differentiable operation of liblora_kernels its shapes, a plain float64
// loop and the calls of the kernels.
#pragma once

#include <algorithm>
#include <functional>

#include "support/kernel_tensors.h"

namespace lk_test {

using Inputs = std::vector<Values>;
using Views = std::vector<lk_tensor>;

struct Case {
  std::string name;
  std::vector<Shape> inputs;
  Shape output;
  int64_t depth;  // the longest sum behind one element of a result or gradient
  std::function<Values(const Inputs&)> reference;
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
  c.reference = [=](const Inputs& v) {
    Values y(static_cast<size_t>(rows * out));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t o = 0; o < out; ++o) {
        double sum = v[2][o];
        for (int64_t j = 0; j < in; ++j) sum += v[0][i * in + j] * v[1][o * in + j];
        y[i * out + o] = sum;
      }
    }
    return y;
  };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_linear, context, {in[0], in[1], {}, in[2], y});
  };
  c.backward = [](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_linear_backward, context, {dy, in[0], in[1], {}, g[0], g[1], g[2]});
  };
  c.differentiable = {true, true, true};
  return c;
}

inline Case lora_case(int64_t rows, int64_t in, int64_t out, int64_t rank) {
  Case c;
  c.inner = 2;
  c.name = "lora";
  c.inputs = {{rows, in}, {out, in}, {rank, in}, {out, rank}, {rows, rank}};
  c.output = {rows, out};
  c.depth = std::max({rows, in, out});
  constexpr double scale = 0.5;
  c.reference = [=](const Inputs& v) {
    Values y(static_cast<size_t>(rows * out));
    for (int64_t i = 0; i < rows; ++i) {
      Values s(static_cast<size_t>(rank), 0.0);
      for (int64_t r = 0; r < rank; ++r) {
        for (int64_t j = 0; j < in; ++j) s[r] += v[0][i * in + j] * v[2][r * in + j];
        s[r] *= v[4][i * rank + r];
      }
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (int64_t j = 0; j < in; ++j) sum += v[0][i * in + j] * v[1][o * in + j];
        for (int64_t r = 0; r < rank; ++r) sum += scale * s[r] * v[3][o * rank + r];
        y[i * out + o] = sum;
      }
    }
    return y;
  };
  c.forward = [=](lk_context* context, const Views& in_views, lk_tensor y) {
    Tensor s({rows, rank}, LK_F32);
    return call(lk_lora_forward, context,
                {in_views[0], in_views[1], {}, {}, in_views[2], in_views[3], in_views[4], scale, y, s.view()});
  };
  c.backward = [](lk_context* context, const Views& in_views, lk_tensor, lk_tensor dy, const Views& g) {
    return call(
        lk_lora_backward, context,
        {dy, in_views[0], {}, in_views[1], {}, in_views[2], in_views[3], in_views[4], scale, 0, g[0], g[2], g[3]});
  };
  c.differentiable = {true, false, true, true, false};
  return c;
}

inline Case conv_case(int64_t n, int64_t h, int64_t w, int64_t ch, int64_t o, int64_t k, int32_t stride, int32_t pad) {
  Case c;
  c.inner = 1;
  const int64_t oh = (h + 2 * pad + 1 - k) / stride + 1, ow = (w + 2 * pad - k) / stride + 1;  // one more row below
  c.name = "conv2d";
  c.inputs = {{n, h, w, ch}, {o, k, k, ch}, {o}};
  c.output = {n, oh, ow, o};
  c.depth = std::max(k * k * std::max(ch, o), n * oh * ow);
  c.reference = [=](const Inputs& v) {
    Values y;
    for (int64_t p = 0; p < n * oh * ow; ++p) {
      const int64_t image = p / (oh * ow), i0 = p / ow % oh * stride - pad, j0 = p % ow * stride - pad;
      for (int64_t f = 0; f < o; ++f) {
        double sum = v[2][f];
        for (int64_t tap = 0; tap < k * k * ch; ++tap) {
          const int64_t i = i0 + tap / ch / k, j = j0 + tap / ch % k;
          if (i < 0 || i >= h || j < 0 || j >= w) continue;
          sum += v[0][((image * h + i) * w + j) * ch + tap % ch] * v[1][f * k * k * ch + tap];
        }
        y.push_back(sum);
      }
    }
    return y;
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_conv2d, context, {in[0], in[1], in[2], y, stride, pad, pad, pad + 1, pad});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_conv2d_backward, context, {dy, in[0], in[1], g[0], g[1], g[2], stride, pad, pad, pad + 1, pad});
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
  const lk_status status =
      call(lk_attention, context,
           {p.q, p.k, p.v, p.bias, p.key_lengths, p.key_mask, p.scale, p.soft_cap, p.causal, p.o, p.lse});
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
  c.reference = [=](const Inputs& v) {
    Values y(static_cast<size_t>(a.b * a.sq * a.h * a.d), 0.0);
    for (int64_t t = 0; t < a.b * a.sq * a.h; ++t) {
      const int64_t batch = t / (a.sq * a.h), i = t / a.h % a.sq, head = t % a.h / a.group();
      double total = 0;
      for (int64_t j = 0; j < a.sk; ++j) {
        if (!a.seen(batch, i, j)) continue;
        const int64_t key = ((batch * a.sk + j) * a.key_heads + head) * a.d;
        double score = 0;
        for (int64_t e = 0; e < a.d; ++e) score += scale * v[0][t * a.d + e] * v[1][key + e];
        if (a.soft_cap > 0) score = a.soft_cap * std::tanh(score / a.soft_cap);
        const double weight = std::exp(score + (a.bias ? v[3][i * a.sk + j] : 0.0));
        total += weight;
        for (int64_t e = 0; e < a.d; ++e) y[t * a.d + e] += weight * v[2][key + e];
      }
      for (int64_t e = 0; e < a.d && total > 0; ++e) y[t * a.d + e] /= total;
    }
    return y;
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
  c.reference = [=](const Inputs& v) {
    Values y(v[0].size());
    for (int64_t i = 0; i < rows; ++i) {
      double total = 0;
      for (int64_t j = 0; j < cols; ++j) total += std::exp(v[0][i * cols + j]);
      for (int64_t j = 0; j < cols; ++j) y[i * cols + j] = std::exp(v[0][i * cols + j]) / total;
    }
    return y;
  };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) { return call(lk_softmax, context, {in[0], y}); };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    Tensor y({rows, cols}, LK_F32);  // the stored result of a 16-bit run would bring its own rounding
    if (const lk_status status = call(lk_softmax, context, {in[0], y.view()}); status != LK_OK) return status;
    return call(lk_softmax_backward, context, {dy, y.view(), g[0]});
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
  c.reference = [=](const Inputs& v) {
    const int64_t groups = kind <= 1 ? 1 : kind, width = channels / groups, span = kind <= 1 ? 1 : pixels;
    Values y(v[0].size());
    for (int64_t block = 0; block < n * pixels / span; ++block) {
      for (int64_t g = 0; g < groups; ++g) {
        const auto at = [&](int64_t i) { return (block * span + i / width) * channels + g * width + i % width; };
        double mean = 0, squares = 0;
        for (int64_t i = 0; i < span * width && kind != 1; ++i) mean += v[0][at(i)] / (span * width);
        for (int64_t i = 0; i < span * width; ++i) squares += std::pow(v[0][at(i)] - mean, 2) / (span * width);
        for (int64_t i = 0; i < span * width; ++i) {
          const int64_t ch = at(i) % channels;
          const double xh = (v[0][at(i)] - mean) / std::sqrt(squares + eps);
          y[at(i)] = xh * v[1][ch] + (kind == 1 ? 0.0 : v[2][ch]);
        }
      }
    }
    return y;
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    if (kind == 0) return call(lk_layer_norm, context, {in[0], in[1], in[2], y, float_eps});
    if (kind == 1) return call(lk_rms_norm, context, {in[0], in[1], y, float_eps});
    return call(lk_group_norm, context, {in[0], in[1], in[2], y, kind, float_eps});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    if (kind == 0) return call(lk_layer_norm_backward, context, {dy, in[0], in[1], float_eps, g[0], g[1], g[2]});
    if (kind == 1) return call(lk_rms_norm_backward, context, {dy, in[0], in[1], float_eps, g[0], g[1]});
    return call(lk_group_norm_backward, context, {dy, in[0], in[1], kind, float_eps, g[0], g[1], g[2]});
  };
  c.differentiable = {true, true, kind != 1};
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
    Values y(v[0].size());
    for (int64_t row = 0; row < images * length; ++row) {
      const double* const x = v[0].data() + row * channels;
      double mean = 0, squares = 0;
      for (int64_t i = 0; i < channels; ++i) mean += x[i] / channels;
      for (int64_t i = 0; i < channels; ++i) squares += std::pow(x[i] - mean, 2) / channels;
      for (int64_t i = 0; i < channels; ++i) {
        const int64_t at = row / length * channels + i;
        y[row * channels + i] = (x[i] - mean) / std::sqrt(squares + eps) * (1 + v[1][at]) + v[2][at];
      }
    }
    return y;
  };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_modulated_norm, context, {in[0], in[1], in[2], y, eps});
  };
  c.backward = [](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_modulated_norm_backward, context, {dy, in[0], in[1], eps, g[0], g[1], g[2]});
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
    Values y(v[0].size());
    for (int64_t i = 0; i < images * length * channels; ++i)
      y[i] = v[0][i] + v[1][i / (length * channels) * channels + i % channels] * v[2][i];
    return y;
  };
  c.forward = [](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_gated_residual, context, {in[0], in[1], in[2], y});
  };
  c.backward = [](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return call(lk_gated_residual_backward, context, {dy, in[1], in[2], g[2], g[1]});
  };
  c.differentiable = {false, true, true};  // the gradient of x is dy itself
  return c;
}

inline double unary_reference(lk_unary_kind kind, double a, double b, double x) {
  switch (kind) {
    case LK_SILU: return x / (1 + std::exp(-x));
    case LK_GELU_ERF: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case LK_GELU_TANH: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case LK_GELU_QUICK: return x / (1 + std::exp(-1.702 * x));
    case LK_SIGMOID: return 1 / (1 + std::exp(-x));
    case LK_TANH: return std::tanh(x);
    case LK_RELU: return std::max(x, 0.0);
    case LK_EXP: return std::exp(x);
    case LK_SQRT: return std::sqrt(x);
    case LK_RSQRT: return 1 / std::sqrt(x);
    case LK_ABS: return std::fabs(x);
    case LK_SIGN: return x > 0 ? 1 : -1;
    case LK_SQUARE: return x * x;
    case LK_AFFINE: return a * x + b;
    case LK_SIN: return std::sin(x);
    case LK_COS: return std::cos(x);
    case LK_LOG: return std::log(x);
    case LK_FLOOR: return std::floor(x);
    case LK_CEIL: return std::ceil(x);
    case LK_ROUND: return std::nearbyint(x);
    default: return std::clamp(x, a, b);
  }
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
  c.reference = [=](const Inputs& v) {
    Values y;
    for (const double x : v[0]) y.push_back(unary_reference(kind, a, b, x));
    return y;
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    return call(lk_unary, context, {kind, a, b, in[0], y});
  };
  // 16-bit values lie on the steps of these, where differences have no limit.
  const bool steps = kind == LK_FLOOR || kind == LK_CEIL || kind == LK_ROUND;
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    return steps ? LK_OK : call(lk_unary_backward, context, {kind, a, b, dy, in[0], g[0]});
  };
  c.differentiable = {!steps};
  return c;
}

inline Case loss_case(lk_loss_kind kind, int64_t batch, int64_t size) {
  Case c;
  c.name = kind == LK_MSE ? "mse" : "huber";
  c.inputs = {{batch, size}, {batch, size}};
  c.output = {1};
  c.depth = 4;
  c.low = -2;
  c.high = 2;
  constexpr float delta = 0.7654321f;
  c.reference = [=](const Inputs& v) {
    double sum = 0;
    for (int64_t i = 0; i < batch * size; ++i) {
      const double d = std::fabs(v[0][i] - v[1][i]), weight = 1.0 + static_cast<double>(i / size);
      const double huber = d <= delta ? d * d / 2 : delta * (d - delta / 2.0);
      sum += weight * (kind == LK_MSE ? d * d : huber) / static_cast<double>(batch * size);
    }
    return Values{sum};
  };
  const auto weights = [=](Tensor& tensor) {
    for (int64_t i = 0; i < batch; ++i) tensor.put(i, 1.0f + static_cast<float>(i));
    return tensor.view();
  };
  c.forward = [=](lk_context* context, const Views& in, lk_tensor y) {
    Tensor weight({batch}, LK_F32);
    y.dtype = LK_F32;
    return call(lk_loss, context, {kind, delta, in[0], in[1], weights(weight), y});
  };
  c.backward = [=](lk_context* context, const Views& in, lk_tensor, lk_tensor dy, const Views& g) {
    Tensor weight({batch}, LK_F32), dloss({1}, LK_F32);
    dloss.store(context, {Values(1, 1.0)});
    (void)dy;
    return call(lk_loss_backward, context, {kind, delta, dloss.view(), in[0], in[1], weights(weight), g[0]});
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
                             conv_case(2, 7, 9, 5, 6, 3, 1, 1),
                             conv_case(1, 9, 8, 3, 4, 3, 2, 0),
                             conv_case(1, 33, 31, 4, 5, 1, 1, 0),
                             conv_case(2, 9, 7, 2, 3, 1, 2, 0),
                             conv_case(1, 6, 5, 3, 2, 4, 3, 2),
                             softmax_case(1, 1),
                             softmax_case(33, 257),
                             norm_case(1, 1, 31, 0),
                             norm_case(3, 31, 33, 0),
                             norm_case(3, 31, 33, 1),
                             norm_case(2, 33, 12, 3),
                             norm_case(1, 257, 64, 32),
                             modulated_norm_case(1, 1, 31),
                             modulated_norm_case(3, 33, 40),
                             modulated_norm_case(2, 257, 33),
                             gated_residual_case(1, 1, 31),
                             gated_residual_case(3, 33, 40),
                             gated_residual_case(2, 257, 33),
                             loss_case(LK_MSE, 3, 257),
                             loss_case(LK_HUBER, 3, 257)};
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
  cases.push_back(attention_case({.b = 3, .sq = 33, .sk = 65, .h = 2, .d = 32, .mask = true}));
  cases.push_back(attention_case({.b = 3, .sq = 33, .sk = 300, .h = 4, .d = 16, .key_heads = 1, .mask = true}));
  cases.push_back(
      attention_case({.b = 2, .sq = 7, .sk = 33, .h = 2, .d = 8, .causal = true, .lengths = true, .mask = true}));
  cases.push_back(attention_case({.b = 2, .sq = 33, .sk = 31, .h = 4, .d = 8, .key_heads = 2, .soft_cap = 1.5}));
  for (lk_unary_kind kind = LK_SILU; kind <= LK_ROUND; ++kind) cases.push_back(unary_case(kind, 257));
  return cases;
}

}  // namespace lk_test
