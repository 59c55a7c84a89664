// lk_reduce_sum: y = scale * sum of x over the axes where y has 1.
#include "check.h"
#include "dispatch.h"

namespace {

void check_reduce_sum(const lk_reduce_sum_params& p) {
  const lk::Check check("reduce_sum");
  check.number(LK_ARG(p, x));
  check.number_like(LK_ARG(p, y), LK_ARG(p, x));
  check.require(p.x.dtype != LK_I32 || p.scale == 1.0f, "scale", "1 for i32", p.scale);
  check.rank(LK_ARG(p, y), p.x.rank, p.x.rank);
  for (int32_t i = 0; i < p.x.rank; ++i) {
    check.require(
        p.y.dims[i] == 1 || p.y.dims[i] == p.x.dims[i], "y",
        [&] { return "1 or the same size on every axis of " + lk::shape_text(lk::shape_of(p.x)); }, lk::shape_of(p.y));
  }
  check.separate(LK_ARG(p, y), {LK_ARG(p, x)});
}

}  // namespace

LK_DEFINE_OP(reduce_sum, lk_reduce_sum_params)
