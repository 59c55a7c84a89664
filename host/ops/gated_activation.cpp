// gated_activation: y = act(a) b for a and b of one shape and type; the attribute `kind` names act. Made by the fuse
// pass.
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { A, B };

std::vector<Desc> infer(const Infer& a) { return {required(a, A)}; }

void gradient(Gradient& g) {
  const std::vector<Value> d =
      g.emit_all(gated_activation_backward_op, {g.dout(), g.in(A), g.in(B)},
                 {{"kind", g.attrs().i("kind")}, {"da", int64_t{g.needs(A)}}, {"db", int64_t{g.needs(B)}}});
  size_t next = 0;
  for (const size_t input : {A, B})
    if (g.needs(input)) g.set(input, d[next++]);
}

lk_status launch(const Launch& l) {
  lk_gated_activation_params p{};
  p.kind = static_cast<lk_unary_kind>(l.attrs.i("kind"));
  p.a = l.in[A];
  p.b = l.in[B];
  p.y = l.out[0];
  return lk_gated_activation(l.context, &p);
}

// Inputs: dy, a, b.
std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("da") != 0) out.push_back(required(a, 1));
  if (a.attrs.i("db") != 0) out.push_back(required(a, 2));
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_gated_activation_backward_params p{};
  size_t next = 0;
  p.kind = static_cast<lk_unary_kind>(l.attrs.i("kind"));
  p.dy = l.in[0];
  p.a = l.in[1];
  p.b = l.in[2];
  if (l.attrs.i("da") != 0) p.da = l.out[next++];
  if (l.attrs.i("db") != 0) p.db = l.out[next];
  return lk_gated_activation_backward(l.context, &p);
}

}  // namespace

const OpDef gated_activation_op{.name = "gated_activation",
                                .infer = infer,
                                .gradient = gradient,
                                .launch = launch,
                                .lines_in = {0, 1},
                                .lines_out = {0}};
const OpDef gated_activation_backward_op{.name = "gated_activation_backward",
                                         .infer = infer_backward,
                                         .launch = launch_backward,
                                         .lines_in = {0, 1, 2},
                                         .lines_out = {0, 1}};

}  // namespace lh
