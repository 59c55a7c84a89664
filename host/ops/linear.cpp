// linear: y[..., out] = x[..., in] weight[out, in]^T + bias[out]. The weight may be kept in fewer bits; the input
// weight_scale, which only the host adds, holds the factors that multiply it (lora_kernels.h).
#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { X, WEIGHT, BIAS, WEIGHT_SCALE };

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, X), &weight = required(a, WEIGHT);
  expect_weight(weight, "weight");
  expect(weight.shape.rank() == 2, "weight must be [out, in], is " + weight.text());
  expect(x.shape.rank() >= 1 && x.shape[x.shape.rank() - 1] == weight.shape[1],
         fmt::format("last axis of x {} is not the weight's input width {}", x.text(), weight.shape[1]));
  if (a.in.size() > BIAS && a.in[BIAS] != nullptr)
    expect(a.in[BIAS]->shape == Shape{weight.shape[0]}, "bias must be [out], is " + a.in[BIAS]->text());
  return {{x.dtype, x.shape.with(-1, weight.shape[0])}};
}

void gradient(Gradient& g) {
  Attrs attrs;
  take_products(g.attrs(), attrs);
  emit_needed(g, linear_backward_op, std::move(attrs));
}

lk_status launch(const Launch& l) {
  lk_linear_params p{};
  p.x = l.in[X];
  p.weight = l.in[WEIGHT];
  if (l.in.size() > BIAS) p.bias = l.in[BIAS];
  if (l.in.size() > WEIGHT_SCALE) p.weight_scale = l.in[WEIGHT_SCALE];
  p.y = l.out[0];
  p.products = products_of(l.attrs);
  return lk_linear(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_linear_backward_params p{};
  bind_backward(l, p);
  p.products = products_of(l.attrs);
  return lk_linear_backward(l.context, &p);
}

}  // namespace

const OpDef linear_op{.name = "linear/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef linear_backward_op{.name = "linear_backward", .infer = infer_needed, .launch = launch_backward};

}  // namespace lh
