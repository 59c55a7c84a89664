// linear: y[..., out] = x[..., in] weight[out, in]^T + bias[out].
#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &weight = required(a, 1);
  expect(weight.shape.rank() == 2, "weight must be [out, in], is " + weight.text());
  expect(x.shape.rank() >= 1 && x.shape[x.shape.rank() - 1] == weight.shape[1],
         fmt::format("last axis of x {} is not the weight's input width {}", x.text(), weight.shape[1]));
  if (a.in.size() > 2 && a.in[2] != nullptr)
    expect(a.in[2]->shape == Shape{weight.shape[0]}, "bias must be [out], is " + a.in[2]->text());
  return {{x.dtype, x.shape.with(-1, weight.shape[0])}};
}

void gradient(Gradient& g) { emit_needed(g, linear_backward_op); }

lk_status launch(const Launch& l) {
  lk_linear_params p{};
  p.x = l.in[0];
  p.weight = l.in[1];
  if (l.in.size() > 2) p.bias = l.in[2];
  p.y = l.out[0];
  return lk_linear(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_linear_backward_params p{};
  bind_backward(l, p);
  return lk_linear_backward(l.context, &p);
}

}  // namespace

const OpDef linear_op{.name = "linear/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef linear_backward_op{.name = "linear_backward", .infer = infer_needed, .launch = launch_backward};

}  // namespace lh
