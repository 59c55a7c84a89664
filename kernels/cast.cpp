// lk_cast: y = x (times scale) in another storage type.
#include "check.h"
#include "dispatch.h"

namespace {

void check_cast(const lk_cast_params& p) {
  const lk::Check check("cast");
  check.tensor(LK_ARG(p, x));
  if (lk::present(p.scale)) check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  check.scale_factors(LK_ARG(p, scale), p.x.dims[0]);
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, scale)});
}

}  // namespace

LK_DEFINE_OP(cast, lk_cast_params)
