// rms_norm_rope: y = rope(rms_norm(x)); x [B, S, H, D], cos and sin as of rope, the optional weight [D],
// which is frozen. Made by the fuse pass.
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { X, COS, SIN, WEIGHT };

std::vector<Desc> infer(const Infer& a) { return {required(a, X)}; }

void gradient(Gradient& g) {
  if (g.needs(WEIGHT))
    fail(Code::internal, "the weight of the norm before a rotation is trained; such norms stay ops of their own");
  if (!g.needs(X)) return;
  g.set(X, g.emit(rms_norm_rope_backward_op, {g.dout(), g.in(X), g.in(COS), g.in(SIN), g.in(WEIGHT)}, g.attrs()));
}

// Of both ways; x is the input `first`, and the others come behind it.
template <class Params>
void bind(const Launch& l, size_t first, Params& p) {
  p.x = l.in[first + X];
  p.cos = l.in[first + COS];
  p.sin = l.in[first + SIN];
  p.weight = l.in[first + WEIGHT];
  p.eps = static_cast<float>(l.attrs.f("eps"));
  p.interleaved = static_cast<int32_t>(l.attrs.i("interleaved"));
}

lk_status launch(const Launch& l) {
  lk_rms_norm_rope_params p{};
  bind(l, 0, p);
  p.y = l.out[0];
  return lk_rms_norm_rope(l.context, &p);
}

// Inputs: dy and those of rms_norm_rope.
std::vector<Desc> infer_backward(const Infer& a) { return {required(a, 1 + X)}; }

lk_status launch_backward(const Launch& l) {
  lk_rms_norm_rope_backward_params p{};
  bind(l, 1, p);
  p.dy = l.in[0];
  p.dx = l.out[0];
  return lk_rms_norm_rope_backward(l.context, &p);
}

}  // namespace

const OpDef rms_norm_rope_op{
    .name = "rms_norm_rope", .infer = infer, .gradient = gradient, .launch = launch, .lines_in = {X}, .lines_out = {0}};
const OpDef rms_norm_rope_backward_op{.name = "rms_norm_rope_backward",
                                      .infer = infer_backward,
                                      .launch = launch_backward,
                                      .lines_in = {0, 1 + X},
                                      .lines_out = {0}};

}  // namespace lh
