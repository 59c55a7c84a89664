// top_k: the k largest of the last axis, largest first, equal ones by their place. Results are values and their places.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  const int64_t k = a.attrs.i("k"), rank = x.shape.rank();
  expect(is_float(x.dtype) && rank >= 1, "x must be floating and have an axis, is " + x.text());
  expect(k >= 1 && k <= x.shape[rank - 1],
         fmt::format("k must be from 1 to the {} elements of the last axis, is {}", x.shape[rank - 1], k));
  return {{x.dtype, x.shape.with(-1, k)}, {DType::i32, x.shape.with(-1, k)}};
}

void gradient(Gradient& g) {
  if (g.dout()) g.set(0, g.emit(top_k_backward_op, {g.dout(), g.out(1), g.in(0)}));
}

lk_status launch(const Launch& l) {
  lk_top_k_params p{.x = l.in[0], .values = l.out[0], .index = l.out[1]};
  return lk_top_k(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_top_k_backward_params p{.dvalues = l.in[0], .index = l.in[1], .dx = l.out[0]};
  return lk_top_k_backward(l.context, &p);
}

}  // namespace

const OpDef top_k_op{.name = "top_k/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef top_k_backward_op{.name = "top_k_backward",
                              .infer = [](const Infer& a) -> std::vector<Desc> { return {required(a, 2)}; },
                              .launch = launch_backward};

}  // namespace lh
