// lk_accumulate: total (+)= alpha x, total f32.
#include "check.h"
#include "dispatch.h"

namespace {

void check_accumulate(const lk_accumulate_params& p) {
  const lk::Check check("accumulate");
  check.floating(LK_ARG(p, x));
  check.dtype(LK_ARG(p, total), LK_F32);
  check.shape(LK_ARG(p, total), lk::shape_of(p.x));
  check.separate(LK_ARG(p, total), {LK_ARG(p, x)});
}

}  // namespace

LK_DEFINE_OP(accumulate, lk_accumulate_params)
