#include "cuda/gemv.h"
#include "cuda/lora_ways.h"

namespace lk::cuda {

namespace {

// What s is computed from, in both directions.
template <class Params>
Gemv few_rows_s(const Params& p, const Sizes& n, const Out& s) {
  Gemv call;
  call.rows = n.rows;
  call.x = in(p.x);
  call.weight = weight_of(p.down);
  call.mask = in(p.mask);
  call.y = s;
  return call;
}

}  // namespace

void few_rows_forward(Cuda& cuda, const lk_lora_forward_params& p, const Sizes& n) {
  gemv(cuda, few_rows_s(p, n, out(p.s)));
  Gemv call;
  call.rows = n.rows;
  call.x = in(p.x);
  if (present(p.weight)) call.weight = weight_of(p.weight, p.weight_scale);
  call.weight.out = n.out;
  call.weight.in = n.in;
  call.bias = in(p.bias);
  call.left = in(p.s);
  call.left_comes = true;
  call.right = in(p.up);
  call.rank = n.rank;
  call.branch_scale = p.scale;
  call.y = out(p.y);
  gemv(cuda, call);
  add_to(cuda, p.y, p.added);
}

void few_rows_backward(Cuda& cuda, const lk_lora_backward_params& p, const Sizes& n, const Dx& d) {
  AdapterGradients gradients = gradients_of(p, n);
  gradients.s = in(p.s);
  if (present(p.dup) && !present(p.s)) {
    float* const s = cuda.scratch<float>(n.rows * n.rank);
    gemv(cuda, few_rows_s(p, n, {s, LK_F32}));
    gradients.s = {s, LK_F32};
  }
  if (needs_ds(p, d)) {
    GemvTransposed call;
    call.rows = n.rows;
    call.dy = in(p.dy);
    call.weight = weight_of(p.up);
    call.alpha = p.scale;
    call.mask = in(p.mask);
    call.dx = present(p.ds) ? out(p.ds) : Out{cuda.scratch<float>(n.rows * n.rank), LK_F32};
    gemv_transposed(cuda, call);
    gradients.ds = {call.dx.data, call.dx.dtype};
  }
  gradients_of_few_rows(cuda, gradients);
  if (!present(d.dx)) return;
  GemvTransposed call;
  call.rows = n.rows;
  call.dy = in(p.dy);
  if (present(p.weight)) call.weight = weight_of(p.weight, p.weight_scale);
  call.weight.out = n.out;
  call.weight.in = n.in;
  call.left = gradients.ds;
  call.right = in(p.down);
  call.rank = n.rank;
  call.dx = out(d.dx);
  gemv_transposed(cuda, call);
  add_to(cuda, d.dx, d.added);
}

}  // namespace lk::cuda
