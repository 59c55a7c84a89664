// rms_norm over the last axis: x / sqrt(mean(x^2) + eps) * weight; weight is optional.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(x.shape.rank() >= 1, "x must have at least one axis");
  const int64_t channels = x.shape[x.shape.rank() - 1];
  if (a.in.size() > 1 && a.in[1] != nullptr)
    expect(a.in[1]->shape == Shape{channels}, fmt::format("weight must be [{}], is {}", channels, a.in[1]->text()));
  return {x};
}

void gradient(Gradient& g) {
  const auto optional = [&](size_t i) { return i < g.input_count() ? g.in(i) : Value{}; };
  Attrs attrs{{"eps", g.attrs().f("eps")}};
  attrs.set("dx", int64_t{g.needs(0)});
  attrs.set("dweight", int64_t{g.needs(1)});
  const std::vector<Value> d = g.emit_all(rms_norm_backward_op, {g.dout(), g.in(0), optional(1)}, attrs);
  size_t next = 0;
  for (size_t i = 0; i < 2; ++i)
    if (g.needs(i)) g.set(i, d[next++]);
}

lk_status launch(const Launch& l) {
  lk_rms_norm_params p{};
  p.x = l.in[0];
  if (l.in.size() > 1) p.weight = l.in[1];
  p.y = l.out[0];
  p.eps = static_cast<float>(l.attrs.f("eps"));
  return lk_rms_norm(l.context, &p);
}

std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("dx") != 0) out.push_back(required(a, 1));
  if (a.attrs.i("dweight") != 0) out.push_back(required(a, 2));
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_rms_norm_backward_params p{};
  p.dy = l.in[0];
  p.x = l.in[1];
  p.weight = l.in[2];
  p.eps = static_cast<float>(l.attrs.f("eps"));
  size_t next = 0;
  if (l.attrs.i("dx") != 0) p.dx = l.out[next++];
  if (l.attrs.i("dweight") != 0) p.dweight = l.out[next++];
  return lk_rms_norm_backward(l.context, &p);
}

}  // namespace

const OpDef rms_norm_op{.name = "rms_norm/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef rms_norm_backward_op{.name = "rms_norm_backward", .infer = infer_backward, .launch = launch_backward};

}  // namespace lh
