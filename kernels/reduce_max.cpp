// lk_reduce_max: y = max of x over the axes where y has 1.
#include "check.h"
#include "dispatch.h"

namespace {

void check_reduce_max(const lk_reduce_max_params& p) {
  const lk::Check check("reduce_max");
  check.floating(LK_ARG(p, x));
  check.floating(LK_ARG(p, y));
  check.rank(LK_ARG(p, y), p.x.rank, p.x.rank);
  for (int32_t i = 0; i < p.x.rank; ++i) {
    check.require(p.x.dims[i] > 0, "x", "no axis of size 0", lk::shape_of(p.x));
    check.require(
        p.y.dims[i] == 1 || p.y.dims[i] == p.x.dims[i], "y",
        [&] { return "1 or the same size on every axis of " + lk::shape_text(lk::shape_of(p.x)); }, lk::shape_of(p.y));
  }
  check.separate(LK_ARG(p, y), {LK_ARG(p, x)});
}

}  // namespace

LK_DEFINE_OP(reduce_max, lk_reduce_max_params)
