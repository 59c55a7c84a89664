// lk_expand: y = x repeated along the axes where x has 1.
#include "check.h"
#include "dispatch.h"

namespace {

void check_expand(const lk_expand_params& p) {
  const lk::Check check("expand");
  check.number(LK_ARG(p, x));
  check.number_like(LK_ARG(p, y), LK_ARG(p, x));
  check.rank(LK_ARG(p, y), p.x.rank, p.x.rank);
  for (int32_t i = 0; i < p.x.rank; ++i) {
    check.require(
        p.x.dims[i] == 1 || p.x.dims[i] == p.y.dims[i], "y",
        [&] { return "a shape that " + lk::shape_text(lk::shape_of(p.x)) + " expands to"; }, lk::shape_of(p.y));
  }
  check.separate(LK_ARG(p, y), {LK_ARG(p, x)});
}

}  // namespace

LK_DEFINE_OP(expand, lk_expand_params)
