// lk_where: y = condition != 0 ? a : b with right-aligned broadcasting.
#include "check.h"
#include "dispatch.h"

namespace {

void check_where(const lk_where_params& p) {
  const lk::Check check("where");
  check.tensor(LK_ARG(p, condition));
  check.require(p.condition.dtype != LK_F8_E4M3 && p.condition.dtype != LK_F8_E5M2 && p.condition.dtype != LK_I8,
                "condition", "f32, f16, bf16, i32, i64 or u8", lk_dtype_name(p.condition.dtype));
  check.number(LK_ARG(p, a));
  check.number_like(LK_ARG(p, b), LK_ARG(p, a));
  check.number_like(LK_ARG(p, y), LK_ARG(p, a));
  check.broadcast(LK_ARG(p, y), {LK_ARG(p, condition), LK_ARG(p, a), LK_ARG(p, b)});
  check.separate(LK_ARG(p, y), {LK_ARG(p, condition), LK_ARG(p, a), LK_ARG(p, b)});
}

}  // namespace

LK_DEFINE_OP(where, lk_where_params)
