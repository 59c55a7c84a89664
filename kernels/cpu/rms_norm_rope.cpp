// Rotary embedding of an RMS norm of x [B, S, H, D] over D: y = rope(x r w), r = 1 / sqrt(mean(x^2) + eps).
// Backward: dy turned back is the gradient of the norm's result.
#include "cpu/convert.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"

namespace lk::cpu {

void rms_norm_rope(Cpu& cpu, const lk_rms_norm_rope_params& p) {
  const int64_t depth = last_dim(p.x), rows = numel(p.x) / depth;
  const FloatIn x(cpu, p.x), weight(cpu, p.weight), cos(cpu, p.cos), sin(cpu, p.sin);
  const FloatOut y(cpu, p.y);
  rms_norm_rows(cpu, {x, weight, rows, depth, rows, p.eps}, {}, y);
  rotate_heads(cpu, rotation_of(cos, sin, p.cos, p.x, p.interleaved != 0, false), p.x, y, y);
}

void rms_norm_rope_backward(Cpu& cpu, const lk_rms_norm_rope_backward_params& p) {
  const int64_t depth = last_dim(p.x), rows = numel(p.x) / depth;
  const FloatIn dy(cpu, p.dy), x(cpu, p.x), weight(cpu, p.weight), cos(cpu, p.cos), sin(cpu, p.sin);
  const FloatOut dx(cpu, p.dx);
  const Scratch<float> turned(cpu, numel(p.x));
  rotate_heads(cpu, rotation_of(cos, sin, p.cos, p.x, p.interleaved != 0, true), p.x, dy, turned.data());
  rms_norm_rows_backward(cpu, {x, weight, rows, depth, rows, p.eps}, turned.data(), nullptr, dx, nullptr);
}

}  // namespace lk::cpu
