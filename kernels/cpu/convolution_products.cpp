// Forward. Row p of `patches` [P, taps C] holds the window of output pixel p, so y = patches weight^T. A task makes the
// patches of a bounded run of output pixels and multiplies them while they are in the cache; a window of one tap and
// stride 1 needs no patches.
//
// Gradient to weight. dweight [O, taps C] = sum over runs of pixels of dy^T patches.
#include <cstring>

#include "cpu/convolution.h"
#include "cpu/gemm.h"
#include "cpu/linear.h"

namespace lk::cpu {

namespace {

// One row of taps, of which those from `first` to `last` lie within the row of the image that begins at `row`.
void gather_row(const ConvolutionShape& s, const Pixels& x, int64_t row, int64_t first, int64_t last, float* patch) {
  std::memset(patch, 0, float_bytes(first * s.c));
  const float* from = x.data + (row + first) * x.stride;
  if (x.stride == s.c) {  // the taps lie side by side
    std::memcpy(patch + first * s.c, from, float_bytes((last - first) * s.c));
  } else {
    for (int64_t k = first; k < last; ++k, from += x.stride) std::copy_n(from, s.c, patch + k * s.c);
  }
  std::memset(patch + last * s.c, 0, float_bytes((s.w.kernel - last) * s.c));
}

// patches [end - begin, KT, KH, KW, C] of output pixels begin..end.
void gather_patches(const ConvolutionShape& s, const Pixels& x, int64_t begin, int64_t end, float* patches) {
  const int64_t row_floats = s.w.kernel * s.c;
  for (int64_t pixel = begin; pixel < end; ++pixel) {
    const int64_t line = pixel / s.w.out, frame = line / s.h.out;
    const int64_t j0 = pixel % s.w.out * s.w.stride - s.w.before, i0 = line % s.h.out * s.h.stride - s.h.before;
    const int64_t t0 = frame % s.t.out * s.t.stride - s.t.before, image = frame / s.t.out * s.t.in;
    const int64_t first = std::clamp<int64_t>(-j0, 0, s.w.kernel);
    const int64_t last = std::clamp<int64_t>(s.w.in - j0, first, s.w.kernel);
    for (int64_t kt = 0; kt < s.t.kernel; ++kt) {
      const int64_t t = t0 + kt;
      for (int64_t kh = 0; kh < s.h.kernel; ++kh, patches += row_floats) {
        const int64_t i = i0 + kh;
        if (t < 0 || t >= s.t.in || i < 0 || i >= s.h.in || first == last) {
          std::memset(patches, 0, float_bytes(row_floats));
        } else {
          gather_row(s, x, ((image + t) * s.h.in + i) * s.w.in + j0, first, last, patches);
        }
      }
    }
  }
}

void group_weight_gradient(Cpu& cpu, const ConvolutionShape& s, const Pixels& dy, const Pixels& x, float* dweight) {
  const int64_t depth = s.window(), run = 4 * run_length(depth);
  const Scratch<float> patches(cpu, std::min(run, s.outputs()) * depth);
  for (int64_t begin = 0; begin < s.outputs(); begin += run) {
    const int64_t count = std::min(run, s.outputs() - begin);
    parallel_for(cpu, count, depth, [&](int64_t first, int64_t last) {
      gather_patches(s, x, begin + first, begin + last, patches.data() + first * depth);
    });
    gemm(cpu, s.o, depth, count, 1.0f, {dy.data + begin * dy.stride, dy.stride, true}, {patches.data(), depth},
         begin == 0 ? 0.0f : 1.0f, dweight, depth);
  }
}

}  // namespace

void convolve(Cpu& cpu, const ConvolutionShape& s, const float* x, const float* weight, const float* bias, float* y) {
  const int64_t depth = s.window(), x_stride = s.groups * s.c, y_stride = s.groups * s.o;
  if (bias != nullptr) fill_rows(cpu, bias, s.outputs(), y_stride, y);
  const float beta = bias != nullptr ? 1.0f : 0.0f;
  if (s.pointwise()) {
    for (int64_t g = 0; g < s.groups; ++g) {
      gemm(cpu, s.outputs(), s.o, depth, 1.0f, {x + g * s.c, x_stride}, {weight + g * s.o * depth, depth, true}, beta,
           y + g * s.o, y_stride);
    }
    return;
  }
  const int64_t run = run_length(depth), tasks = (s.outputs() + run - 1) / run;
  const Scratch<float> patches(cpu, cpu.threads() * run * depth);
  parallel_tasks(cpu, tasks, [&](int64_t task, int64_t slot) {
    const int64_t begin = task * run, end = std::min(s.outputs(), begin + run);
    float* const own = patches.data() + slot * run * depth;
    for (int64_t g = 0; g < s.groups; ++g) {
      gather_patches(s, {x + g * s.c, x_stride}, begin, end, own);
      gemm_serial(end - begin, s.o, depth, 1.0f, {own, depth}, {weight + g * s.o * depth, depth, true}, beta,
                  y + begin * y_stride + g * s.o, y_stride);
    }
  });
}

void weight_gradient(Cpu& cpu, const ConvolutionShape& s, const float* dy, const float* x, float* dweight) {
  const int64_t x_stride = s.groups * s.c, y_stride = s.groups * s.o, depth = s.window();
  for (int64_t g = 0; g < s.groups; ++g) {
    float* const own = dweight + g * s.o * depth;
    if (s.pointwise()) {
      gemm(cpu, s.o, s.c, s.outputs(), 1.0f, {dy + g * s.o, y_stride, true}, {x + g * s.c, x_stride}, 0.0f, own, s.c);
    } else {
      group_weight_gradient(cpu, s, {dy + g * s.o, y_stride}, {x + g * s.c, x_stride}, own);
    }
  }
}

}  // namespace lk::cpu
