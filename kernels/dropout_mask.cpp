// lk_dropout_mask: y = 0 with probability p, else 1 / (1 - p).
#include "check.h"
#include "dispatch.h"

namespace {

void check_dropout_mask(const lk_dropout_mask_params& p) {
  const lk::Check check("dropout_mask");
  check.dtype(LK_ARG(p, step), LK_I32);
  check.require(lk_numel(&p.step) == 1, "step", "one element", lk::shape_of(p.step));
  check.floating(LK_ARG(p, y));
  check.require(p.p >= 0 && p.p < 1, "p", "0 <= p < 1", p.p);
  check.separate(LK_ARG(p, y), {LK_ARG(p, step)});
}

}  // namespace

LK_DEFINE_OP(dropout_mask, lk_dropout_mask_params)
