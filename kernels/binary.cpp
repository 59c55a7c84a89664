// lk_binary: y = a (kind) b with right-aligned broadcasting.
#include "check.h"
#include "dispatch.h"
#include "integers.h"

namespace {

void check_binary(const lk_binary_params& p) {
  const lk::Check check("binary");
  check.require(p.kind >= LK_ADD && p.kind <= LK_GREATER, "kind", "0 to 10", p.kind);
  check.number(LK_ARG(p, a));
  check.number_like(LK_ARG(p, b), LK_ARG(p, a));
  check.require(p.kind != LK_DIV || p.a.dtype != LK_I32, "kind", "no division of i32", "LK_DIV");
  if (lk::comparison(p.kind)) {
    check.number(LK_ARG(p, y));
  } else {
    check.number_like(LK_ARG(p, y), LK_ARG(p, a));
  }
  check.broadcast(LK_ARG(p, y), {LK_ARG(p, a), LK_ARG(p, b)});
  check.in_place_or_separate(LK_ARG(p, y), LK_ARG(p, a));
  check.in_place_or_separate(LK_ARG(p, y), LK_ARG(p, b));
}

}  // namespace

LK_DEFINE_OP(binary, lk_binary_params)
