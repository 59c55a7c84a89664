// expand: axes of length 1 repeated to a shape.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  Shape shape(a.attrs.list("shape"));
  bool fits = shape.rank() == x.shape.rank();
  for (int64_t i = 0; fits && i < shape.rank(); ++i) fits = x.shape[i] == shape[i] || x.shape[i] == 1;
  expect(fits, "cannot expand " + x.text() + " to " + shape.text());
  return {{x.dtype, std::move(shape)}};
}

void gradient(Gradient& g) { g.set(0, reduce_to(g, g.dout(), g.in(0))); }

lk_status launch(const Launch& l) {
  lk_expand_params p{.x = l.in[0], .y = l.out[0]};
  return lk_expand(l.context, &p);
}

}  // namespace

const OpDef expand_op{.name = "expand/1", .infer = infer, .gradient = gradient, .launch = launch};

}  // namespace lh
