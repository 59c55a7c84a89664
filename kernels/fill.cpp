// lk_fill: every element of y = value, any type.
#include "check.h"
#include "dispatch.h"

namespace {

void check_fill(const lk_fill_params& p) {
  const lk::Check check("fill");
  check.tensor(LK_ARG(p, y));
}

}  // namespace

LK_DEFINE_OP(fill, lk_fill_params)
