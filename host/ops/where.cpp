// where: condition != 0 ? a : b, all of one shape.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& args) {
  const Desc &condition = required(args, 0), &a = required(args, 1), &b = required(args, 2);
  expect(condition.shape == a.shape && a.shape == b.shape, "condition, a and b must have one shape");
  return {a};
}

void gradient(Gradient& g) {
  const Value zero = g.emit(affine_op, {g.dout()}, {{"scale", 0.0}, {"shift", 0.0}});
  if (g.needs(1)) g.set(1, g.emit(where_op, {g.in(0), g.dout(), zero}));
  if (g.needs(2)) g.set(2, g.cast_like(g.emit(where_op, {g.in(0), zero, g.dout()}), g.in(2)));
}

lk_status launch(const Launch& l) {
  lk_where_params p{.condition = l.in[0], .a = l.in[1], .b = l.in[2], .y = l.out[0]};
  return lk_where(l.context, &p);
}

}  // namespace

const OpDef where_op{.name = "where/1", .infer = infer, .gradient = gradient, .launch = launch, .elementwise = true};

}  // namespace lh
