// amax: the largest element over axes, which stay as 1.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(is_float(x.dtype), "x must be floating, is " + x.text() + "; cast it first");
  expect(x.shape.numel() > 0, "x is empty: " + x.text());
  Shape shape = x.shape;
  for (const int64_t axis : a.attrs.list("axes")) shape = shape.with(axis_of(x, axis), 1);
  return {{x.dtype, std::move(shape)}};
}

lk_status launch(const Launch& l) {
  lk_reduce_max_params p{.x = l.in[0], .y = l.out[0]};
  return lk_reduce_max(l.context, &p);
}

}  // namespace

const OpDef amax_op{.name = "amax/1", .infer = infer, .launch = launch};

}  // namespace lh
