// Convolution as matrix products over image patches, in NHWC: x [N, H, W, C], weight [O, KH, KW, C], y [N, OH, OW, O].
//
// Forward. Row p of `patches` [P, KH KW C] holds the window of output pixel p, so y = patches weight^T. A task makes
// the patches of a bounded run of output pixels and multiplies them while they are in the cache; a 1x1 window of
// stride 1 needs no patches.
//
// Gradient to x. Input pixel (i, j) receives from output pixel (oi, oj) through tap (kh, kw) where
// oi stride + kh = i + pad_top, oj stride + kw = j + pad_left. Input pixels whose (i + pad_top, j + pad_left) agree
// modulo the stride use the same taps, so for each of the stride^2 phases the gradient is again a product of patches,
// now of dy, with a reordered weight [taps O, C]: no two tasks add to one pixel and no product is with zeros that the
// stride put there.
//
// Gradient to weight. dweight [O, KH KW C] = sum over runs of pixels of dy^T patches.
#include <cstring>

#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "cpu/gemm.h"
#include "cpu/linear.h"

namespace lk::cpu {

namespace {

constexpr int64_t patch_floats = 256 << 10;  // of one task: about the second-level cache

struct Geometry {
  int64_t n, h, w, c, o, kh, kw, oh, ow, stride, top, left;
  int64_t patch() const { return kh * kw * c; }
  int64_t pixels() const { return n * oh * ow; }
  bool pointwise() const { return kh == 1 && kw == 1 && stride == 1 && oh == h && ow == w; }
};

template <class Params>
Geometry geometry(const Params& p, const lk_tensor& x, const lk_tensor& weight, const lk_tensor& y) {
  return {x.dims[0],      x.dims[1], x.dims[2], x.dims[3], weight.dims[0], weight.dims[1],
          weight.dims[2], y.dims[1], y.dims[2], p.stride,  p.pad_top,      p.pad_left};
}

int64_t run_length(int64_t row_floats) { return std::clamp<int64_t>(patch_floats / row_floats, 64, 1024); }

// patches [end - begin, KH, KW, C] of output pixels begin..end. The taps of one window row lie side by side in x.
void gather_patches(const Geometry& g, const float* x, int64_t begin, int64_t end, float* patches) {
  const int64_t row_floats = g.kw * g.c;
  for (int64_t pixel = begin; pixel < end; ++pixel) {
    const int64_t n = pixel / (g.oh * g.ow), i0 = pixel / g.ow % g.oh * g.stride - g.top;
    const int64_t j0 = pixel % g.ow * g.stride - g.left;
    const int64_t first = std::clamp<int64_t>(-j0, 0, g.kw), last = std::clamp<int64_t>(g.w - j0, first, g.kw);
    for (int64_t kh = 0; kh < g.kh; ++kh, patches += row_floats) {
      const int64_t i = i0 + kh;
      if (i < 0 || i >= g.h || first == last) {
        std::memset(patches, 0, static_cast<size_t>(row_floats) * sizeof(float));
        continue;
      }
      std::memset(patches, 0, static_cast<size_t>(first * g.c) * sizeof(float));
      std::memcpy(patches + first * g.c, x + ((n * g.h + i) * g.w + j0 + first) * g.c,
                  static_cast<size_t>((last - first) * g.c) * sizeof(float));
      std::memset(patches + last * g.c, 0, static_cast<size_t>((g.kw - last) * g.c) * sizeof(float));
    }
  }
}

// One axis of a phase: which taps k = first, first + stride, ... and which pixels i = start, start + stride, ...
struct PhaseAxis {
  int64_t first, taps, start, count;
  PhaseAxis(int64_t phase, int64_t stride, int64_t kernel, int64_t pad, int64_t size) : first(phase) {
    taps = phase < kernel ? (kernel - phase + stride - 1) / stride : 0;
    start = ((phase - pad) % stride + stride) % stride;
    count = start < size ? (size - start + stride - 1) / stride : 0;
  }
};

void input_gradient_phase(Cpu& cpu, const Geometry& g, PhaseAxis rows, PhaseAxis cols, const float* dy,
                          const float* weight, float* dx) {
  const int64_t taps = rows.taps * cols.taps, depth = taps * g.o, pixels = g.n * rows.count * cols.count;
  const Scratch<float> reordered(cpu, std::max<int64_t>(1, depth * g.c));  // [taps, O, C]
  for (int64_t tap = 0; tap < taps; ++tap) {
    const int64_t kh = rows.first + tap / cols.taps * g.stride, kw = cols.first + tap % cols.taps * g.stride;
    for (int64_t o = 0; o < g.o; ++o) {
      std::memcpy(reordered.data() + (tap * g.o + o) * g.c, weight + ((o * g.kh + kh) * g.kw + kw) * g.c,
                  static_cast<size_t>(g.c) * sizeof(float));
    }
  }
  const int64_t run = run_length(std::max<int64_t>(1, depth)), tasks = (pixels + run - 1) / run;
  const Scratch<float> patches(cpu, cpu.threads() * run * std::max<int64_t>(1, depth));
  const Scratch<float> results(cpu, cpu.threads() * run * g.c);
  parallel_tasks(cpu, tasks, [&](int64_t task, int64_t slot) {
    const int64_t begin = task * run, end = std::min(pixels, begin + run);
    float* const own = patches.data() + slot * run * depth;
    float* const result = results.data() + slot * run * g.c;
    float* patch = own;
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const int64_t n = pixel / (rows.count * cols.count);
      const int64_t i = rows.start + pixel / cols.count % rows.count * g.stride;
      const int64_t j = cols.start + pixel % cols.count * g.stride;
      // Exact, by the choice of the phase.
      const int64_t oi0 = (i + g.top - rows.first) / g.stride, oj0 = (j + g.left - cols.first) / g.stride;
      for (int64_t a = 0; a < rows.taps; ++a) {
        for (int64_t b = 0; b < cols.taps; ++b, patch += g.o) {
          const int64_t oi = oi0 - a, oj = oj0 - b;
          if (oi >= 0 && oi < g.oh && oj >= 0 && oj < g.ow) {
            std::memcpy(patch, dy + ((n * g.oh + oi) * g.ow + oj) * g.o, static_cast<size_t>(g.o) * sizeof(float));
          } else {
            std::memset(patch, 0, static_cast<size_t>(g.o) * sizeof(float));
          }
        }
      }
    }
    if (depth > 0) {
      gemm_serial(end - begin, g.c, depth, 1.0f, {own, depth}, {reordered.data(), g.c}, 0.0f, result, g.c);
    } else {
      std::memset(result, 0, static_cast<size_t>((end - begin) * g.c) * sizeof(float));
    }
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const int64_t n = pixel / (rows.count * cols.count);
      const int64_t i = rows.start + pixel / cols.count % rows.count * g.stride;
      const int64_t j = cols.start + pixel % cols.count * g.stride;
      std::memcpy(dx + ((n * g.h + i) * g.w + j) * g.c, result + (pixel - begin) * g.c,
                  static_cast<size_t>(g.c) * sizeof(float));
    }
  });
}

void weight_gradient(Cpu& cpu, const Geometry& g, const float* dy, const float* x, float* dweight) {
  const int64_t depth = g.patch(), run = 4 * run_length(depth);
  const Scratch<float> patches(cpu, std::min(run, g.pixels()) * depth);
  for (int64_t begin = 0; begin < g.pixels(); begin += run) {
    const int64_t count = std::min(run, g.pixels() - begin);
    parallel_for(cpu, count, depth, [&](int64_t first, int64_t last) {
      gather_patches(g, x, begin + first, begin + last, patches.data() + first * depth);
    });
    gemm(cpu, g.o, depth, count, 1.0f, {dy + begin * g.o, g.o, true}, {patches.data(), depth}, begin == 0 ? 0.0f : 1.0f,
         dweight, depth);
  }
}

}  // namespace

void conv2d(Cpu& cpu, const lk_conv2d_params& p) {
  const Geometry g = geometry(p, p.x, p.weight, p.y);
  const FloatIn x(cpu, p.x), weight(cpu, p.weight), bias(cpu, p.bias);
  const FloatOut y(cpu, p.y);
  const int64_t depth = g.patch();
  if (bias != nullptr) fill_rows(cpu, bias, g.pixels(), g.o, y);
  const float beta = bias != nullptr ? 1.0f : 0.0f;
  if (g.pointwise()) {
    gemm(cpu, g.pixels(), g.o, depth, 1.0f, {x, depth}, {weight, depth, true}, beta, y, g.o);
    return;
  }
  const int64_t run = run_length(depth), tasks = (g.pixels() + run - 1) / run;
  const Scratch<float> patches(cpu, cpu.threads() * run * depth);
  parallel_tasks(cpu, tasks, [&](int64_t task, int64_t slot) {
    const int64_t begin = task * run, end = std::min(g.pixels(), begin + run);
    float* const own = patches.data() + slot * run * depth;
    gather_patches(g, x, begin, end, own);
    gemm_serial(end - begin, g.o, depth, 1.0f, {own, depth}, {weight, depth, true}, beta, y + begin * g.o, g.o);
  });
}

void conv2d_backward(Cpu& cpu, const lk_conv2d_backward_params& p) {
  const FloatIn dy(cpu, p.dy);
  if (present(p.dx)) {
    const Geometry g = geometry(p, p.dx, p.weight, p.dy);
    const FloatIn weight(cpu, p.weight);
    const FloatOut dx(cpu, p.dx);
    if (g.pointwise()) {
      gemm(cpu, g.pixels(), g.c, g.o, 1.0f, {dy, g.o}, {weight, g.c}, 0.0f, dx, g.c);
    } else {
      for (int64_t phase = 0; phase < g.stride * g.stride; ++phase) {
        input_gradient_phase(cpu, g, PhaseAxis(phase / g.stride, g.stride, g.kh, g.top, g.h),
                             PhaseAxis(phase % g.stride, g.stride, g.kw, g.left, g.w), dy, weight, dx);
      }
    }
  }
  if (present(p.dweight)) {
    const Geometry g = geometry(p, p.x, p.dweight, p.dy);
    const FloatIn x(cpu, p.x);
    const FloatOut dweight(cpu, p.dweight);
    if (g.pointwise()) {
      gemm(cpu, g.o, g.c, g.pixels(), 1.0f, {dy, g.o, true}, {x, g.c}, 0.0f, dweight, g.c);
    } else {
      weight_gradient(cpu, g, dy, x, dweight);
    }
  }
  if (present(p.dbias)) {
    const int64_t channels = last_dim(p.dy);
    const FloatOut dbias(cpu, p.dbias);
    column_sums(cpu, dy, numel(p.dy) / channels, channels, dbias);
  }
}

}  // namespace lk::cpu
