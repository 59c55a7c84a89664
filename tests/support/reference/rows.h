// Float64 references of operations over rows: softmax, norms, positions, sums, losses.
#pragma once

#include <array>
#include <cmath>
#include <map>

#include "lora_kernels.h"
#include "support/reference/tensor.h"

namespace lh::test::reference {

inline Values softmax(const Values& x, int64_t width) {
  Values y = x;
  for (size_t row = 0; row < y.size(); row += static_cast<size_t>(width)) {
    double total = 0;
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i) total += y[i] = std::exp(y[i]);
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i) y[i] /= total;
  }
  return y;
}

struct Norm {
  Dims dims;
  double eps;
  bool centred = true;
  int64_t groups = 0;  // of channels, with all but the first axis; 0: over the last axis alone
};

// (x - mean) / sqrt(variance + eps), or without the mean.
inline Values normalised(const Norm& n, const Values& x) {
  const int64_t channels = n.dims.back();
  const auto group = [&](const Dims& i) {
    if (n.groups > 0) return i[0] * n.groups + i.back() / (channels / n.groups);
    return static_cast<int64_t>(place_of(n.dims, i)) / channels;
  };
  std::map<int64_t, std::array<double, 3>> sums;  // count, sum, sum of squares about the mean
  each_index(n.dims, [&](const Dims& i) {
    auto& s = sums[group(i)];
    s[0] += 1;
    s[1] += n.centred ? x[place_of(n.dims, i)] : 0;
  });
  each_index(n.dims, [&](const Dims& i) {
    auto& s = sums[group(i)];
    s[2] += std::pow(x[place_of(n.dims, i)] - s[1] / s[0], 2);
  });
  Values y;
  each_index(n.dims, [&](const Dims& i) {
    const auto& s = sums[group(i)];
    y.push_back((x[place_of(n.dims, i)] - s[1] / s[0]) / std::sqrt(s[2] / s[0] + n.eps));
  });
  return y;
}

// The same times weight [C] plus bias [C]; empty ones are none.
inline Values norm(const Norm& n, const Values& x, const Values& weight, const Values& bias) {
  Values y = normalised(n, x);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t channel = i % static_cast<size_t>(n.dims.back());
    if (!weight.empty()) y[i] *= weight[channel];
    if (!bias.empty()) y[i] += bias[channel];
  }
  return y;
}

// norm(x) (1 + scale) + shift, for x [images, length, channels], scale and shift [images, channels]; an empty shift is
// none.
inline Values modulated_norm(const Norm& n, const Values& x, const Values& weight, const Values& scale,
                             const Values& shift) {
  Values y = norm(n, x, weight, {});
  for (size_t i = 0; i < y.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const int64_t at = place / (n.dims[1] * n.dims[2]) * n.dims[2] + place % n.dims[2];
    y[i] *= 1 + scale[at];
    if (!shift.empty()) y[i] += shift[at];
  }
  return y;
}

// x [B, S, H, D]; cos and sin [S, D / 2], or [B, S, D / 2] with tables of their own for each sample.
struct Rope {
  Dims x;
  bool own_tables, interleaved;
  Dims table() const { return own_tables ? Dims{x[0], x[1], x[3] / 2} : Dims{x[1], x[3] / 2}; }
};

inline Values rope(const Rope& r, const Values& x, const Values& cos, const Values& sin) {
  const int64_t half = r.x[3] / 2;
  Values y(x.size());
  each_index({r.x[0], r.x[1], r.x[2], half}, [&](const Dims& i) {
    const size_t angle = place_of(r.table(), {i[0], i[1], i[3]}), row = place_of(r.x, {i[0], i[1], i[2], 0});
    const size_t p = row + (r.interleaved ? 2 * i[3] : i[3]), q = row + (r.interleaved ? 2 * i[3] + 1 : i[3] + half);
    y[p] = x[p] * cos[angle] - x[q] * sin[angle];
    y[q] = x[q] * cos[angle] + x[p] * sin[angle];
  });
  return y;
}

inline Values timestep_embedding(const Values& t, int64_t dim, double period, double scale, bool sin_first) {
  Values y;
  each_index({static_cast<int64_t>(t.size()), dim}, [&](const Dims& i) {
    const int64_t half = dim / 2, k = i[1] % half;
    const double angle = scale * t[i[0]] * std::pow(period, -static_cast<double>(k) / static_cast<double>(half));
    y.push_back((i[1] < half) == sin_first ? std::sin(angle) : std::cos(angle));
  });
  return y;
}

// Over the axes where y has 1.
inline Values reduce_sum(const Dims& x_dims, const Dims& y_dims, const Values& x) {
  Values sums(static_cast<size_t>(count_of(y_dims)), 0.0);
  each_index(x_dims, [&](const Dims& i) { sums[place_of(y_dims, i)] += x[place_of(x_dims, i)]; });
  return sums;
}

inline Values reduce_max(const Dims& x_dims, const Dims& y_dims, const Values& x) {
  Values most(static_cast<size_t>(count_of(y_dims)), -INFINITY);
  each_index(x_dims, [&](const Dims& i) {
    double& to = most[place_of(y_dims, i)];
    to = std::max(to, x[place_of(x_dims, i)]);
  });
  return most;
}

// The mean of weight[sample] l(prediction - target); an empty weight is 1.
// weight: none, or one for each run of elements: of a sample or a place. deltas: one for each sample.
inline double loss(lk_loss_kind kind, const Values& deltas, const Values& prediction, const Values& target,
                   const Values& weight) {
  const size_t count = prediction.size();
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const double d = std::fabs(prediction[i] - target[i]), delta = deltas[i * deltas.size() / count];
    const double huber = d <= delta ? d * d / 2 : delta * (d - delta / 2);
    const double l = kind == LK_MSE     ? d * d
                     : kind == LK_HUBER ? huber
                     : kind == LK_L1    ? d
                                        : std::sqrt(d * d + delta * delta) - delta;
    sum += l * (weight.empty() ? 1 : weight[i * weight.size() / count]);
  }
  return sum / static_cast<double>(count);
}

}  // namespace lh::test::reference
