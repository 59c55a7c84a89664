// newton_schulz: matrices with the same singular vectors and singular values of about 1, for updates of matrices.
#include <algorithm>

#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &scale = required(a, 1);
  expect(x.dtype == DType::f32 && x.shape.rank() >= 2, "x must be float32 matrices, is " + x.text());
  const Desc want{DType::f32, x.shape.with(-2, 1).with(-1, 1)};
  expect(scale == want, "scale must be " + want.text() + ", is " + scale.text());
  const int64_t rank = x.shape.rank(), side = std::min(x.shape[rank - 2], x.shape[rank - 1]);
  expect(side <= LK_NEWTON_SCHULZ_MAX_SIDE,
         fmt::format("the shorter side of x must be at most {}, is {}", LK_NEWTON_SCHULZ_MAX_SIDE, side));
  expect(a.attrs.i("steps") >= 1, fmt::format("steps must be at least 1, is {}", a.attrs.i("steps")));
  return {x};
}

lk_status launch(const Launch& l) {
  const lk_newton_schulz_params p{.x = l.in[0],
                                  .scale = l.in[1],
                                  .y = l.out[0],
                                  .a = l.attrs.f("a"),
                                  .b = l.attrs.f("b"),
                                  .c = l.attrs.f("c"),
                                  .steps = l.attrs.i("steps")};
  return lk_newton_schulz(l.context, &p);
}

}  // namespace

const OpDef newton_schulz_op{.name = "newton_schulz/1", .infer = infer, .launch = launch};

}  // namespace lh
