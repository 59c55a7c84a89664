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

void gradient(Gradient& g) {
  // Missing outputs are not computed, so one node serves every combination of needs.
  const Attrs attrs{{"dx", int64_t{g.needs(0)}}, {"dweight", int64_t{g.needs(1)}}, {"dbias", int64_t{g.needs(2)}}};
  const Value bias = g.input_count() > 2 ? g.in(2) : Value{};
  const std::vector<Value> d = g.emit_all(linear_backward_op, {g.dout(), g.in(0), g.in(1), bias}, attrs);
  size_t next = 0;
  for (size_t i = 0; i < 3; ++i)
    if (g.needs(i)) g.set(i, d[next++]);
}

lk_status launch(const Launch& l) {
  lk_linear_params p{};
  p.x = l.in[0];
  p.weight = l.in[1];
  if (l.in.size() > 2) p.bias = l.in[2];
  p.y = l.out[0];
  return lk_linear(l.context, &p);
}

std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("dx") != 0) out.push_back(required(a, 1));
  if (a.attrs.i("dweight") != 0) out.push_back(required(a, 2));
  if (a.attrs.i("dbias") != 0) out.push_back(required(a, 3));
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_linear_backward_params p{};
  p.dy = l.in[0];
  p.x = l.in[1];
  p.weight = l.in[2];
  size_t next = 0;
  if (l.attrs.i("dx") != 0) p.dx = l.out[next++];
  if (l.attrs.i("dweight") != 0) p.dweight = l.out[next++];
  if (l.attrs.i("dbias") != 0) p.dbias = l.out[next++];
  return lk_linear_backward(l.context, &p);
}

}  // namespace

const OpDef linear_op{.name = "linear/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef linear_backward_op{.name = "linear_backward", .infer = infer_backward, .launch = launch_backward};

}  // namespace lh
