// layer_norm over the last axis; weight and bias are optional.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(x.shape.rank() >= 1, "x must have at least one axis");
  const int64_t channels = x.shape[x.shape.rank() - 1];
  if (a.in.size() > 1 && a.in[1] != nullptr) {
    expect_weight(*a.in[1], "weight");
    expect(a.in[1]->shape == Shape{channels}, fmt::format("weight must be [{}], is {}", channels, a.in[1]->text()));
  }
  if (a.in.size() > 2 && a.in[2] != nullptr)
    expect(a.in[2]->shape == Shape{channels}, fmt::format("bias must be [{}], is {}", channels, a.in[2]->text()));
  return {x};
}

void gradient(Gradient& g) { emit_needed(g, layer_norm_backward_op, {{"eps", g.attrs().f("eps")}}, g.take_sum(0)); }

lk_status launch(const Launch& l) {
  lk_layer_norm_params p{};
  p.x = l.in[0];
  if (l.in.size() > 1) p.weight = l.in[1];
  if (l.in.size() > 2) p.bias = l.in[2];
  p.y = l.out[0];
  p.eps = static_cast<float>(l.attrs.f("eps"));
  return lk_layer_norm(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_layer_norm_backward_params p{};
  bind_backward(l, p);
  p.eps = static_cast<float>(l.attrs.f("eps"));
  return lk_layer_norm_backward(l.context, &p);
}

}  // namespace

const OpDef layer_norm_op{.name = "layer_norm/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef layer_norm_backward_op{.name = "layer_norm_backward", .infer = infer_needed, .launch = launch_backward};

}  // namespace lh
