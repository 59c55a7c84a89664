// lk_cast: y = x (times scale) in another storage type.
#include "check.h"
#include "dispatch.h"

namespace {

void check_cast(const lk_cast_params& p) {
  const lk::Check check("cast");
  if (lk::present(p.scale) || p.x.dtype == LK_NF4)
    check.weight(LK_ARG(p, x), LK_ARG(p, scale));
  else
    check.tensor(LK_ARG(p, x));
  if (p.x.dtype == LK_NF4)
    check.floating(LK_ARG(p, y));
  else
    check.tensor(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, scale)});
}

}  // namespace

LK_DEFINE_OP(cast, lk_cast_params)
