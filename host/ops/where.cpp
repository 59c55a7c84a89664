// where: condition != 0 ? a : b with right-aligned broadcasting; the result has the type of a.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& args) {
  const Desc &condition = required(args, 0), &a = required(args, 1), &b = required(args, 2);
  expect(is_float(a.dtype) ? is_float(b.dtype) : a.dtype == DType::i32 && b.dtype == DType::i32,
         "a and b must both be floating or both int32, are " + a.text() + " and " + b.text() + "; cast one of them");
  return {{a.dtype, broadcast({&condition, &a, &b})}};
}

void gradient(Gradient& g) {
  const Value zero = g.zero();
  if (g.needs(1)) g.set(1, reduce_to(g, g.emit(where_op, {g.in(0), g.dout(), zero}), g.in(1)));
  if (g.needs(2)) g.set(2, reduce_to(g, g.emit(where_op, {g.in(0), zero, g.dout()}), g.in(2)));
}

lk_status launch(const Launch& l) {
  lk_where_params p{.condition = l.in[0], .a = l.in[1], .b = l.in[2], .y = l.out[0]};
  return lk_where(l.context, &p);
}

}  // namespace

const OpDef where_op{.name = "where/1", .infer = infer, .gradient = gradient, .launch = launch, .elementwise = true};

}  // namespace lh
