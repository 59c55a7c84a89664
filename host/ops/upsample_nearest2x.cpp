// upsample_nearest2x: [N, H, W, C] -> [N, 2H, 2W, C]; backward sums the 2x2 blocks.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(x.shape.rank() == 4, "x must be [N, H, W, C], is " + x.text());
  return {{x.dtype, x.shape.with(1, checked_mul(2, x.shape[1])).with(2, checked_mul(2, x.shape[2]))}};
}

void gradient(Gradient& g) { g.set(0, g.emit(upsample_nearest2x_backward_op, {g.dout(), g.in(0)})); }

lk_status launch(const Launch& l) {
  lk_upsample_nearest2x_params p{.x = l.in[0], .y = l.out[0]};
  return lk_upsample_nearest2x(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_upsample_nearest2x_params p{.x = l.in[0], .y = l.out[0]};
  return lk_upsample_nearest2x_backward(l.context, &p);
}

}  // namespace

const OpDef upsample_nearest2x_op{
    .name = "upsample_nearest2x/1", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef upsample_nearest2x_backward_op{
    .name = "upsample_nearest2x_backward",
    .infer = [](const Infer& a) -> std::vector<Desc> { return {required(a, 1)}; },
    .launch = launch_backward};

}  // namespace lh
