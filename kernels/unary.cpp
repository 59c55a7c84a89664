// lk_unary and its gradient: y = f(x), dx = dy f'(x), element by element, in place allowed.
#include "check.h"
#include "dispatch.h"

namespace {

void check_kind(const lk::Check& check, lk_unary_kind kind) {
  check.require(kind >= LK_SILU && kind <= LK_CLAMP, "kind", "0 to 14", std::to_string(kind));
}

void check_unary(const lk_unary_params& p) {
  const lk::Check check("unary");
  check_kind(check, p.kind);
  check.floating(LK_ARG(p, x));
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.in_place_or_separate(LK_ARG(p, y), LK_ARG(p, x));
}

void check_unary_backward(const lk_unary_backward_params& p) {
  const lk::Check check("unary_backward");
  check_kind(check, p.kind);
  check.floating(LK_ARG(p, dy));
  check.floating(LK_ARG(p, x));
  check.shape(LK_ARG(p, x), lk::shape_of(p.dy));
  check.floating(LK_ARG(p, dx));
  check.shape(LK_ARG(p, dx), lk::shape_of(p.dy));
  check.in_place_or_separate(LK_ARG(p, dx), LK_ARG(p, dy));
  check.separate(LK_ARG(p, dx), {LK_ARG(p, x)});
}

}  // namespace

LK_DEFINE_OP(unary, lk_unary_params)
LK_DEFINE_OP(unary_backward, lk_unary_backward_params)
