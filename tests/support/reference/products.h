// Float64 references of operations that multiply and add over an axis.
#pragma once

#include "support/reference/tensor.h"

namespace lh::test::reference {

// x [rows, in] weight [out, in]^T + bias [out]; an empty bias is none.
inline Values linear(const Values& x, const Values& weight, const Values& bias, int64_t in, int64_t out) {
  Values y;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(in))
    for (int64_t o = 0; o < out; ++o) {
      double sum = bias.empty() ? 0 : bias[o];
      for (int64_t i = 0; i < in; ++i) sum += x[row + i] * weight[o * in + i];
      y.push_back(sum);
    }
  return y;
}

struct Lora {
  int64_t in, out, rank;
  double scale;
};

// x weight^T + scale ((x down^T) mask) up^T
inline Values lora(const Lora& l, const Values& x, const Values& weight, const Values& down, const Values& up,
                   const Values& mask) {
  Values inner = linear(x, down, {}, l.in, l.rank), y = linear(x, weight, {}, l.in, l.out);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] *= mask[i];
  const Values added = linear(inner, up, {}, l.rank, l.out);
  for (size_t i = 0; i < y.size(); ++i) y[i] += l.scale * added[i];
  return y;
}

struct Matmul {
  int64_t batch, m, k, n;
  bool transpose_a, transpose_b;
};

inline Values matmul(const Matmul& p, const Values& a, const Values& b) {
  Values y;
  each_index({p.batch, p.m, p.n}, [&](const Dims& i) {
    double sum = 0;
    for (int64_t j = 0; j < p.k; ++j)
      sum += a[i[0] * p.m * p.k + (p.transpose_a ? j * p.m + i[1] : i[1] * p.k + j)] *
             b[i[0] * p.k * p.n + (p.transpose_b ? i[2] * p.k + j : j * p.n + i[2])];
    y.push_back(sum);
  });
  return y;
}

// In two or three dimensions, with zero padding.
struct Convolution {
  Dims x;  // [N, H, W, C] or [N, T, H, W, C]
  int64_t outputs;
  Dims kernel, stride, before, after;
  int64_t groups = 1;
  bool channels_last = false;  // the weight is [O, K..., C / groups] and not [O, C / groups, K...]

  int64_t channels() const { return x.back() / groups; }
  Dims weight() const {
    Dims dims = kernel;
    dims.insert(channels_last ? dims.end() : dims.begin(), channels());
    dims.insert(dims.begin(), outputs);
    return dims;
  }
  Dims y() const {
    Dims dims = x;
    dims.back() = outputs;
    for (size_t i = 0; i < kernel.size(); ++i)
      dims[i + 1] = (x[i + 1] + before[i] + after[i] - kernel[i]) / stride[i] + 1;
    return dims;
  }
};

// The element `at` of a result without bias.
inline double convolved(const Convolution& c, const Values& x, const Values& weight, const Dims& at) {
  const int64_t first = at.back() / (c.outputs / c.groups) * c.channels();
  const Dims weight_dims = c.weight(), taps(weight_dims.begin() + 1, weight_dims.end());
  const size_t channel = c.channels_last ? taps.size() - 1 : 0, space = c.channels_last ? 0 : 1;
  double sum = 0;
  each_index(taps, [&](const Dims& tap) {
    Dims from = at, in_weight = tap;
    for (size_t i = 0; i < c.kernel.size(); ++i) {
      from[i + 1] = at[i + 1] * c.stride[i] - c.before[i] + tap[i + space];
      if (from[i + 1] < 0 || from[i + 1] >= c.x[i + 1]) return;
    }
    from.back() = first + tap[channel];
    in_weight.insert(in_weight.begin(), at.back());
    sum += x[place_of(c.x, from)] * weight[place_of(weight_dims, in_weight)];
  });
  return sum;
}

inline Values convolution(const Convolution& c, const Values& x, const Values& weight, const Values& bias) {
  Values y;
  each_index(c.y(), [&](const Dims& at) { y.push_back(bias[at.back()] + convolved(c, x, weight, at)); });
  return y;
}

}  // namespace lh::test::reference
