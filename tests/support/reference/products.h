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

// x weight^T + scale ((x down^T) mask) up^T; without the first where there is no weight.
inline Values lora(const Lora& l, const Values& x, const Values& weight, const Values& down, const Values& up,
                   const Values& mask) {
  Values inner = linear(x, down, {}, l.in, l.rank);
  Values y = weight.empty() ? Values(x.size() / l.in * l.out) : linear(x, weight, {}, l.in, l.out);
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

inline Values convolution(const Convolution& c, const Values& x, const Values& weight, const Values& bias) {
  // With three axes: an image is one frame.
  const auto three = [&](Dims dims, size_t at, int64_t missing) {
    if (c.kernel.size() == 2) dims.insert(dims.begin() + static_cast<int64_t>(at), missing);
    return dims;
  };
  const Dims from = three(c.x, 1, 1), to = three(c.y(), 1, 1), kernel = three(c.kernel, 0, 1);
  const Dims stride = three(c.stride, 0, 1), before = three(c.before, 0, 0);
  const int64_t channels = c.channels(), taps = count_of(kernel);
  Values y;
  each_index(to, [&](const Dims& at) {
    const int64_t o = at[4], first = o / (c.outputs / c.groups) * channels;
    double sum = bias[o];
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t t = at[1] * stride[0] - before[0] + tap / (kernel[1] * kernel[2]);
      const int64_t i = at[2] * stride[1] - before[1] + tap / kernel[2] % kernel[1];
      const int64_t j = at[3] * stride[2] - before[2] + tap % kernel[2];
      if (t < 0 || t >= from[1] || i < 0 || i >= from[2] || j < 0 || j >= from[3]) continue;
      const int64_t pixel = ((at[0] * from[1] + t) * from[2] + i) * from[3] + j;
      for (int64_t ch = 0; ch < channels; ++ch)
        sum += x[pixel * from[4] + first + ch] *
               weight[c.channels_last ? (o * taps + tap) * channels + ch : (o * channels + ch) * taps + tap];
    }
    y.push_back(sum);
  });
  return y;
}

}  // namespace lh::test::reference
