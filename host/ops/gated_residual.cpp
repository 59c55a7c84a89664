// gated_residual: y = x + gate z; x and z [B, S, C], gate [B, 1, C]. With the attribute `rms` rms_norm(z) stands for z,
// with the optional weight [C], which is frozen. Made by the fuse pass.
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { X, GATE, Z, WEIGHT };

bool is_rms(const Attrs& attrs) { return attrs.has("rms"); }

std::vector<Desc> infer(const Infer& a) { return {required(a, X)}; }

void gradient(Gradient& g) {
  if (g.needs(WEIGHT))
    fail(Code::internal, "the weight of the norm behind a gate is trained; such norms stay ops of their own");
  if (g.needs(X)) g.set(X, g.dout());
  if (!g.needs(Z) && !g.needs(GATE)) return;
  std::vector<Value> inputs{g.dout(), g.in(GATE), g.in(Z)};
  Attrs attrs{{"dz", int64_t{g.needs(Z)}}, {"dgate", int64_t{g.needs(GATE)}}};
  if (is_rms(g.attrs())) {
    inputs.push_back(g.in(WEIGHT));
    attrs.set("rms", int64_t{1});
    attrs.set("eps", g.attrs().f("eps"));
  }
  const std::vector<Value> d = g.emit_all(gated_residual_backward_op, std::move(inputs), std::move(attrs));
  size_t next = 0;
  if (g.needs(Z)) g.set(Z, d[next++]);
  if (g.needs(GATE)) g.set(GATE, d[next]);
}

// Of both ways; the weight is the last input.
template <class Params>
void bind_norm(const Launch& l, Params& p) {
  if (!is_rms(l.attrs)) return;
  p.rms = 1;
  p.eps = static_cast<float>(l.attrs.f("eps"));
  p.weight = l.in.back();
}

lk_status launch(const Launch& l) {
  lk_gated_residual_params p{};
  p.x = l.in[X];
  p.gate = l.in[GATE];
  p.z = l.in[Z];
  p.y = l.out[0];
  bind_norm(l, p);
  return lk_gated_residual(l.context, &p);
}

// Inputs: dy, gate, z, weight.
std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("dz") != 0) out.push_back(required(a, 2));
  if (a.attrs.i("dgate") != 0) out.push_back(required(a, 1));
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_gated_residual_backward_params p{};
  size_t next = 0;
  p.dy = l.in[0];
  p.gate = l.in[1];
  p.z = l.in[2];
  bind_norm(l, p);
  if (l.attrs.i("dz") != 0) p.dz = l.out[next++];
  if (l.attrs.i("dgate") != 0) p.dgate = l.out[next];
  return lk_gated_residual_backward(l.context, &p);
}

}  // namespace

const OpDef gated_residual_op{.name = "gated_residual", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef gated_residual_backward_op{
    .name = "gated_residual_backward", .infer = infer_backward, .launch = launch_backward};

}  // namespace lh
