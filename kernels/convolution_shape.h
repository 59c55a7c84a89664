// What a convolution of any of the operations looks like to the backends: x [N, T, H, W, groups C], weight
// [groups O, KT, KH, KW, C], y [N, OT, OH, OW, groups O]. Two dimensions are a time axis of one frame.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lora_kernels.h"

namespace lk {

// `out` windows of `kernel` elements, `stride` apart; the first begins `before` elements in front of the `in` elements.
struct ConvolutionAxis {
  int64_t in, kernel, out, stride, before, after;
  bool pointwise() const { return kernel == 1 && stride == 1 && out == in; }
};

struct ConvolutionShape {
  int64_t n, groups, c, o;  // c and o: channels of one group
  ConvolutionAxis t, h, w;

  int64_t taps() const { return t.kernel * h.kernel * w.kernel; }
  int64_t window() const { return taps() * c; }
  int64_t inputs() const { return n * t.in * h.in * w.in; }
  int64_t outputs() const { return n * t.out * h.out * w.out; }
  // A matrix product of pixels and channels.
  bool pointwise() const { return t.pointwise() && h.pointwise() && w.pointwise(); }
};

// Params of conv2d or conv2d_backward.
template <class Params>
ConvolutionShape planar_shape(const Params& p, const lk_tensor& x, const lk_tensor& weight, const lk_tensor& y) {
  return {x.dims[0],
          p.groups,
          weight.dims[3],
          weight.dims[0] / p.groups,
          {1, 1, 1, 1, 0, 0},
          {x.dims[1], weight.dims[1], y.dims[1], p.stride, p.pad_top, p.pad_bottom},
          {x.dims[2], weight.dims[2], y.dims[2], p.stride, p.pad_left, p.pad_right}};
}

// Params of conv3d or conv3d_backward.
template <class Params>
ConvolutionShape spatial_shape(const Params& p, const lk_tensor& x, const lk_tensor& weight, const lk_tensor& y) {
  const auto axis = [&](int i) {
    return ConvolutionAxis{x.dims[1 + i], weight.dims[1 + i], y.dims[1 + i],
                           p.stride[i],   p.pad[2 * i],       p.pad[2 * i + 1]};
  };
  return {x.dims[0], 1, weight.dims[4], weight.dims[0], axis(0), axis(1), axis(2)};
}

// Taps that lie on an element of the input in some window are all within these; the others meet padding only. A video
// of one frame under a causal window has one such tap, and is as cheap as an image.
struct LiveTaps {
  int64_t first, count;
};

inline LiveTaps live_taps(const ConvolutionAxis& a) {
  const auto live = [&](int64_t tap) {
    for (int64_t i = 0; i < a.out; ++i) {
      const int64_t at = i * a.stride + tap - a.before;
      if (at >= 0 && at < a.in) return true;
    }
    return false;
  };
  int64_t first = 0, last = a.kernel - 1;
  while (first < last && !live(first)) ++first;
  while (last > first && !live(last)) --last;
  return {first, last - first + 1};
}

// The axis with these taps alone.
inline ConvolutionAxis with_taps(const ConvolutionAxis& a, const LiveTaps& live) {
  return {a.in, live.count, a.out, a.stride, a.before - live.first, a.after - (a.kernel - live.first - live.count)};
}

}  // namespace lk
