// attention: softmax(scale q k^T + bias) v per head; q [B, Sq, H, D], k and v [B, Sk, Hk, D], query heads in Hk groups.
// Outputs o and the log-sum-exp of each row, which the backward pass reads.
#include <cmath>

#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &q = required(a, 0), &k = required(a, 1), &v = required(a, 2);
  expect(q.shape.rank() == 4 && k.shape.rank() == 4 && v.shape == k.shape,
         "q, k, v must be [B, S, H, D]; k and v alike");
  expect(q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3], "q and k differ in batch or head width");
  expect(q.shape[2] % k.shape[2] == 0,
         fmt::format("the heads of k must divide the {} of q, are {}", q.shape[2], k.shape[2]));
  if (a.in.size() > 3 && a.in[3] != nullptr) {
    const Shape& b = a.in[3]->shape;
    expect(b.rank() == 4 && (b[0] == 1 || b[0] == q.shape[0]) && (b[1] == 1 || b[1] == q.shape[2]) &&
               b[2] == q.shape[1] && b[3] == k.shape[1],
           "bias must be [1|B, 1|H, Sq, Sk], is " + b.text());
  }
  if (a.in.size() > 4 && a.in[4] != nullptr)
    expect(*a.in[4] == Desc{DType::i32, {q.shape[0]}}, "key_lengths must be int32 [B], is " + a.in[4]->text());
  if (a.in.size() > 5 && a.in[5] != nullptr)
    expect(*a.in[5] == Desc{DType::i32, {q.shape[0], k.shape[1]}},
           "key_mask must be int32 [B, Sk], is " + a.in[5]->text());
  const double soft_cap = a.attrs.f("soft_cap");
  expect(std::isfinite(soft_cap) && soft_cap >= 0, fmt::format("soft_cap must be 0 (none) or above, is {}", soft_cap));
  return {q, {DType::f32, {q.shape[0], q.shape[2], q.shape[1]}}};
}

void gradient(Gradient& g) {
  expect(!g.needs(3), "no gradient flows into an attention bias");
  const Attrs attrs{
      {"scale", g.attrs().f("scale")}, {"causal", g.attrs().i("causal")}, {"soft_cap", g.attrs().f("soft_cap")}};
  const std::vector<Value> d = g.emit_all(
      attention_backward_op,
      {g.dout(), g.in(0), g.in(1), g.in(2), g.out(0), g.out(1), optional(g, 3), optional(g, 4), optional(g, 5)}, attrs);
  for (size_t i = 0; i < 3; ++i)
    if (g.needs(i)) g.set(i, d[i]);
}

lk_status launch(const Launch& l) {
  lk_attention_params p{};
  p.q = l.in[0];
  p.k = l.in[1];
  p.v = l.in[2];
  if (l.in.size() > 3) p.bias = l.in[3];
  if (l.in.size() > 4) p.key_lengths = l.in[4];
  if (l.in.size() > 5) p.key_mask = l.in[5];
  p.scale = static_cast<float>(l.attrs.f("scale"));
  p.soft_cap = static_cast<float>(l.attrs.f("soft_cap"));
  p.causal = static_cast<int32_t>(l.attrs.i("causal"));
  p.o = l.out[0];
  p.lse = l.out[1];
  return lk_attention(l.context, &p);
}

std::vector<Desc> infer_backward(const Infer& a) { return {required(a, 1), required(a, 2), required(a, 3)}; }

lk_status launch_backward(const Launch& l) {
  lk_attention_backward_params p{};
  p.d_o = l.in[0];
  p.q = l.in[1];
  p.k = l.in[2];
  p.v = l.in[3];
  p.o = l.in[4];
  p.lse = l.in[5];
  p.bias = l.in[6];
  p.key_lengths = l.in[7];
  p.key_mask = l.in[8];
  p.scale = static_cast<float>(l.attrs.f("scale"));
  p.soft_cap = static_cast<float>(l.attrs.f("soft_cap"));
  p.causal = static_cast<int32_t>(l.attrs.i("causal"));
  p.dq = l.out[0];
  p.dk = l.out[1];
  p.dv = l.out[2];
  return lk_attention_backward(l.context, &p);
}

}  // namespace

const OpDef attention_op{.name = "attention/1",
                         .infer = infer,
                         .gradient = gradient,
                         .launch = launch,
                         .lines_in = {0, 1, 2},
                         .lines_out = {0}};
const OpDef attention_backward_op{.name = "attention_backward",
                                  .infer = infer_backward,
                                  .launch = launch_backward,
                                  .lines_in = {0, 1, 2, 3, 4},
                                  .lines_out = {0, 1, 2}};

}  // namespace lh
