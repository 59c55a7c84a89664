// lk_unary and its gradient: y = f(x), dx = dy f'(x), element by element, in place allowed.
#include <cmath>

#include "check.h"
#include "dispatch.h"
#include "integers.h"

namespace {

void check_kind(const lk::Check& check, lk_unary_kind kind) {
  check.require(kind >= LK_SILU && kind <= LK_ROUND, "kind", "0 to 20", kind);
}

void check_whole(const lk::Check& check, const char* name, float value) {
  check.require(std::fabs(value) <= 16777216.0f && value == std::nearbyint(value), name,
                "a whole number from -2^24 to 2^24 for i32", value);
}

void check_integer(const lk::Check& check, const lk_unary_params& p) {
  check.require(
      lk::integer_unary_kind(p.kind), "x", [&] { return "f32, f16 or bf16 for kind " + std::to_string(p.kind); },
      "i32");
  if (p.kind != LK_AFFINE && p.kind != LK_CLAMP) return;
  check_whole(check, "a", p.a);
  check_whole(check, "b", p.b);
}

void check_unary(const lk_unary_params& p) {
  const lk::Check check("unary");
  check_kind(check, p.kind);
  const bool in_lines = p.x.dtype != LK_I32;
  const lk::Arg x{"x", &p.x, in_lines}, y{"y", &p.y, in_lines};
  check.number(x);
  check.number_like(y, x);
  if (p.x.dtype == LK_I32) check_integer(check, p);
  check.shape(y, lk::shape_of(p.x));
  check.in_place_or_separate(y, x);
}

void check_unary_backward(const lk_unary_backward_params& p) {
  const lk::Check check("unary_backward");
  check_kind(check, p.kind);
  check.floating(LK_LINES(p, dy));
  check.floating(LK_LINES(p, x));
  check.shape(LK_LINES(p, x), lk::shape_of(p.dy));
  check.floating(LK_LINES(p, dx));
  check.shape(LK_LINES(p, dx), lk::shape_of(p.dy));
  check.in_place_or_separate(LK_LINES(p, dx), LK_LINES(p, dy));
  check.separate(LK_LINES(p, dx), {LK_LINES(p, x)});
}

}  // namespace

LK_DEFINE_OP(unary, lk_unary_params)
LK_DEFINE_OP(unary_backward, lk_unary_backward_params)
