// gather: one row of each sample, y[b, :] = x[b, index[b], :]; take: several, y[b, k, ...] = x[b, index[b, k], ...].
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &index = required(a, 1);
  expect(x.shape.rank() == 3 && index == Desc{DType::i32, {x.shape[0]}},
         "x must be [B, S, D] and index int32 [B], are " + x.text() + " and " + index.text());
  return {{x.dtype, {x.shape[0], x.shape[2]}}};
}

std::vector<Desc> infer_take(const Infer& a) {
  const Desc &x = required(a, 0), &index = required(a, 1);
  expect(x.shape.rank() >= 2 && index.dtype == DType::i32 && index.shape.rank() == 2 && index.shape[0] == x.shape[0],
         "x must be [B, S, ...] and index int32 [B, K], are " + x.text() + " and " + index.text());
  expect(is_float(x.dtype) || x.dtype == DType::i32, "x must be floating or int32, is " + x.text());
  return {{x.dtype, x.shape.with(1, index.shape[1])}};
}

void gradient(Gradient& g) { g.set(0, g.emit(gather_backward_op, {g.dout(), g.in(1), g.in(0)})); }

lk_status launch(const Launch& l) {
  lk_gather_params p{.x = l.in[0], .index = l.in[1], .y = l.out[0]};
  return lk_gather(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_gather_backward_params p{.dy = l.in[0], .index = l.in[1], .dx = l.out[0]};
  return lk_gather_backward(l.context, &p);
}

}  // namespace

const OpDef gather_op{.name = "gather/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef take_op{.name = "take/1", .infer = infer_take, .gradient = gradient, .launch = launch};
const OpDef gather_backward_op{.name = "gather_backward",
                               .infer = [](const Infer& a) -> std::vector<Desc> { return {required(a, 2)}; },
                               .launch = launch_backward};

}  // namespace lh
