// group_norm of x [N, ..., C]: statistics over all but N within each group of channels.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(x.shape.rank() >= 1, "x must have at least one axis");
  const int64_t channels = x.shape[x.shape.rank() - 1];
  expect(x.shape.rank() >= 2 && a.attrs.i("groups") > 0 && channels % a.attrs.i("groups") == 0,
         fmt::format("{} channels do not divide into {} groups", channels, a.attrs.i("groups")));
  if (a.in.size() > 1 && a.in[1] != nullptr) {
    expect_weight(*a.in[1], "weight");
    expect(a.in[1]->shape == Shape{channels}, fmt::format("weight must be [{}], is {}", channels, a.in[1]->text()));
  }
  if (a.in.size() > 2 && a.in[2] != nullptr)
    expect(a.in[2]->shape == Shape{channels}, fmt::format("bias must be [{}], is {}", channels, a.in[2]->text()));
  return {x};
}

void gradient(Gradient& g) {
  emit_needed(g, group_norm_backward_op, {{"groups", g.attrs().i("groups")}, {"eps", g.attrs().f("eps")}});
}

lk_status launch(const Launch& l) {
  lk_group_norm_params p{};
  p.x = l.in[0];
  if (l.in.size() > 1) p.weight = l.in[1];
  if (l.in.size() > 2) p.bias = l.in[2];
  p.y = l.out[0];
  p.groups = static_cast<int32_t>(l.attrs.i("groups"));
  p.eps = static_cast<float>(l.attrs.f("eps"));
  return lk_group_norm(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_group_norm_backward_params p{};
  bind_backward(l, p);
  p.groups = static_cast<int32_t>(l.attrs.i("groups"));
  p.eps = static_cast<float>(l.attrs.f("eps"));
  return lk_group_norm_backward(l.context, &p);
}

}  // namespace

const OpDef group_norm_op{.name = "group_norm/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef group_norm_backward_op{.name = "group_norm_backward", .infer = infer_needed, .launch = launch_backward};

}  // namespace lh
