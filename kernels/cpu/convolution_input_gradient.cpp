// An input pixel i receives from output pixel o through tap k where o stride + k = i + before, on each axis. Input
// pixels whose i + before agree modulo the stride use the same taps, so for each of the phases the gradient is again a
// product of patches, now of dy, with a reordered weight [taps O, C]: no two tasks add to one pixel and no product is
// with zeros that the stride put there.
#include <cstring>

#include "cpu/convolution.h"
#include "cpu/gemm.h"

namespace lk::cpu {

namespace {

// One axis of a phase: which taps k = first, first + stride, ... and which pixels i = start, start + stride, ...
struct PhaseAxis {
  int64_t first, taps, start, count, stride;
  PhaseAxis(int64_t phase, const ConvolutionAxis& a) : first(phase), stride(a.stride) {
    taps = phase < a.kernel ? (a.kernel - phase + a.stride - 1) / a.stride : 0;
    start = ((phase - a.before) % a.stride + a.stride) % a.stride;
    count = start < a.in ? (a.in - start + a.stride - 1) / a.stride : 0;
  }
  int64_t tap(int64_t index) const { return first + index * stride; }
  int64_t pixel(int64_t index) const { return start + index * stride; }
  // Of the window whose tap 0 of this phase lies on pixel `index`. Exact, by the choice of the phase.
  int64_t window(int64_t index, const ConvolutionAxis& a) const { return (pixel(index) + a.before - first) / stride; }
};

struct Phase {
  PhaseAxis t, h, w;
  int64_t taps() const { return t.taps * h.taps * w.taps; }
  int64_t pixels(const ConvolutionShape& s) const { return s.n * t.count * h.count * w.count; }
};

// Input pixel number `pixel` of a phase: the image and where it is on the three axes of the phase.
struct Place {
  int64_t image, t, h, w;
  Place(const Phase& p, int64_t pixel)
      : image(pixel / (p.w.count * p.h.count * p.t.count)),
        t(pixel / (p.w.count * p.h.count) % p.t.count),
        h(pixel / p.w.count % p.h.count),
        w(pixel % p.w.count) {}
};

// [taps, O, C] of weight [O, KT, KH, KW, C].
void reorder_weight(const ConvolutionShape& s, const Phase& p, const float* weight, float* reordered) {
  for (int64_t tap = 0; tap < p.taps(); ++tap) {
    const int64_t kt = p.t.tap(tap / (p.w.taps * p.h.taps)), kh = p.h.tap(tap / p.w.taps % p.h.taps);
    const int64_t from = (kt * s.h.kernel + kh) * s.w.kernel + p.w.tap(tap % p.w.taps);
    for (int64_t o = 0; o < s.o; ++o, reordered += s.c) {
      std::memcpy(reordered, weight + (o * s.taps() + from) * s.c, float_bytes(s.c));
    }
  }
}

// The outputs [taps, O] that an input pixel goes into.
void gather_gradients(const ConvolutionShape& s, const Phase& p, const Pixels& dy, const Place& at, float* patch) {
  const int64_t t0 = p.t.window(at.t, s.t), i0 = p.h.window(at.h, s.h), j0 = p.w.window(at.w, s.w);
  for (int64_t tap = 0; tap < p.taps(); ++tap, patch += s.o) {
    const int64_t t = t0 - tap / (p.w.taps * p.h.taps), i = i0 - tap / p.w.taps % p.h.taps, j = j0 - tap % p.w.taps;
    if (t >= 0 && t < s.t.out && i >= 0 && i < s.h.out && j >= 0 && j < s.w.out) {
      const int64_t pixel = ((at.image * s.t.out + t) * s.h.out + i) * s.w.out + j;
      std::memcpy(patch, dy.data + pixel * dy.stride, float_bytes(s.o));
    } else {
      std::memset(patch, 0, float_bytes(s.o));
    }
  }
}

// dx of one group: its pixels have `dx_stride` channels.
void input_gradient_phase(Cpu& cpu, const ConvolutionShape& s, const Phase& phase, const Pixels& dy,
                          const float* weight, float* dx, int64_t dx_stride) {
  const int64_t depth = phase.taps() * s.o, pixels = phase.pixels(s), room = std::max<int64_t>(1, depth);
  const Scratch<float> reordered(cpu, room * s.c);
  reorder_weight(s, phase, weight, reordered.data());
  const int64_t run = run_length(room), tasks = (pixels + run - 1) / run;
  const Scratch<float> patches(cpu, cpu.threads() * run * room), results(cpu, cpu.threads() * run * s.c);
  parallel_tasks(cpu, tasks, [&](int64_t task, int64_t slot) {
    const int64_t begin = task * run, end = std::min(pixels, begin + run);
    float* const own = patches.data() + slot * run * room;
    float* const result = results.data() + slot * run * s.c;
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      gather_gradients(s, phase, dy, Place(phase, pixel), own + (pixel - begin) * depth);
    }
    if (depth > 0) {
      gemm_serial(end - begin, s.c, depth, 1.0f, {own, depth}, {reordered.data(), s.c}, 0.0f, result, s.c);
    } else {
      std::memset(result, 0, float_bytes((end - begin) * s.c));
    }
    for (int64_t pixel = begin; pixel < end; ++pixel) {
      const Place at(phase, pixel);
      const int64_t frame = at.image * s.t.in + phase.t.pixel(at.t);
      const int64_t to = (frame * s.h.in + phase.h.pixel(at.h)) * s.w.in + phase.w.pixel(at.w);
      std::memcpy(dx + to * dx_stride, result + (pixel - begin) * s.c, float_bytes(s.c));
    }
  });
}

}  // namespace

void input_gradient(Cpu& cpu, const ConvolutionShape& s, const float* dy, const float* weight, float* dx) {
  const int64_t x_stride = s.groups * s.c, y_stride = s.groups * s.o;
  for (int64_t g = 0; g < s.groups; ++g) {
    const float* const own = weight + g * s.o * s.window();
    if (s.pointwise()) {
      gemm(cpu, s.inputs(), s.c, s.o, 1.0f, {dy + g * s.o, y_stride}, {own, s.c}, 0.0f, dx + g * s.c, x_stride);
      continue;
    }
    for (int64_t t = 0; t < s.t.stride; ++t) {
      for (int64_t h = 0; h < s.h.stride; ++h) {
        for (int64_t w = 0; w < s.w.stride; ++w) {
          const Phase phase{PhaseAxis(t, s.t), PhaseAxis(h, s.h), PhaseAxis(w, s.w)};
          input_gradient_phase(cpu, s, phase, {dy + g * s.o, y_stride}, own, dx + g * s.c, x_stride);
        }
      }
    }
  }
}

}  // namespace lk::cpu
