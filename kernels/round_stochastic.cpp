// lk_round_stochastic: bf16 of float32, rounded at random so that the mean is the value.
#include "check.h"
#include "dispatch.h"

namespace {

void check_round_stochastic(const lk_round_stochastic_params& p) {
  const lk::Check check("round_stochastic");
  check.dtype(LK_ARG(p, x), LK_F32);
  check.dtype(LK_ARG(p, step), LK_I32);
  check.shape(LK_ARG(p, step), {1});
  check.dtype(LK_ARG(p, y), LK_BF16);
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, step)});
}

}  // namespace

LK_DEFINE_OP(round_stochastic, lk_round_stochastic_params)
