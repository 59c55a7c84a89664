// modulated_norm: y = norm(x) (1 + scale) + shift; x [B, S, C], scale and shift [B, 1, C]. norm is layer_norm, or with
// the attribute `rms` rms_norm with the optional weight [C], which is frozen; shift is optional then. Made by the fuse
// pass.
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { X, SCALE, SHIFT, WEIGHT };

bool is_rms(const Attrs& attrs) { return attrs.has("rms"); }

std::vector<Desc> infer(const Infer& a) { return {required(a, X)}; }

void gradient(Gradient& g) {
  if (g.needs(WEIGHT))
    fail(Code::internal, "the weight of a modulated norm is trained; such norms stay ops of their own");
  const bool rms = is_rms(g.attrs());
  Attrs attrs{{"eps", g.attrs().f("eps")},
              {"dx", int64_t{g.needs(X)}},
              {"dscale", int64_t{g.needs(SCALE)}},
              {"dshift", int64_t{g.needs(SHIFT)}}};
  if (rms) attrs.set("rms", int64_t{1});
  const std::vector<Value> d = g.emit_all(
      modulated_norm_backward_op,
      {g.dout(), g.in(X), g.in(SCALE), g.in(SHIFT), rms ? g.in(WEIGHT) : Value{}, g.take_sum(X)}, std::move(attrs));
  size_t next = 0;
  for (const size_t input : {X, SCALE, SHIFT})
    if (g.needs(input)) g.set(input, d[next++]);
}

// Of both ways; the weight is this input.
template <class Params>
void bind_norm(const Launch& l, size_t weight, Params& p) {
  p.eps = static_cast<float>(l.attrs.f("eps"));
  if (!is_rms(l.attrs)) return;
  p.rms = 1;
  p.weight = l.in[weight];
}

lk_status launch(const Launch& l) {
  lk_modulated_norm_params p{};
  p.x = l.in[X];
  p.scale = l.in[SCALE];
  p.shift = l.in[SHIFT];
  p.y = l.out[0];
  bind_norm(l, WEIGHT, p);
  return lk_modulated_norm(l.context, &p);
}

// Inputs: dy, x, scale, shift, weight, what dx is added to; shift only for its type.
std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("dx") != 0) out.push_back(required(a, 1));
  if (a.attrs.i("dscale") != 0) out.push_back(required(a, 2));
  if (a.attrs.i("dshift") != 0) out.push_back(required(a, 3));
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_modulated_norm_backward_params p{};
  size_t next = 0;
  p.dy = l.in[0];
  p.x = l.in[1];
  p.scale = l.in[2];
  p.added = l.in[5];
  bind_norm(l, 4, p);
  if (l.attrs.i("dx") != 0) p.dx = l.out[next++];
  if (l.attrs.i("dscale") != 0) p.dscale = l.out[next++];
  if (l.attrs.i("dshift") != 0) p.dshift = l.out[next++];
  return lk_modulated_norm_backward(l.context, &p);
}

}  // namespace

const OpDef modulated_norm_op{.name = "modulated_norm", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef modulated_norm_backward_op{
    .name = "modulated_norm_backward", .infer = infer_backward, .launch = launch_backward};

}  // namespace lh
