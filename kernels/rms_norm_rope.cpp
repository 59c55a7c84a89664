// lk_rms_norm_rope and its gradient: rotary embedding of rms_norm(x), x [B, S, H, D]; weight [D], cos and sin as of
// lk_rope.
#include "check.h"
#include "dispatch.h"

namespace {

// What both ways are given.
template <class Params>
void check_operands(const lk::Check& check, const Params& p) {
  check.floating(LK_LINES(p, x));
  check.rank(LK_LINES(p, x), 4, 4);
  check.angles(LK_LINES(p, x), LK_ARG(p, cos), LK_ARG(p, sin));
  check.require(p.interleaved == 0 || p.cos.dims[p.cos.rank - 1] * 2 == p.x.dims[3], "cos",
                "an angle for each pair of neighbours", "one for each number");
  check.optional(LK_ARG(p, weight), {p.x.dims[3]});
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
}

void check_rms_norm_rope(const lk_rms_norm_rope_params& p) {
  const lk::Check check("rms_norm_rope");
  check_operands(check, p);
  check.floating(LK_LINES(p, y));
  check.shape(LK_LINES(p, y), lk::shape_of(p.x));
  check.separate(LK_LINES(p, y), {LK_LINES(p, x), LK_ARG(p, weight), LK_ARG(p, cos), LK_ARG(p, sin)});
}

void check_rms_norm_rope_backward(const lk_rms_norm_rope_backward_params& p) {
  const lk::Check check("rms_norm_rope_backward");
  check_operands(check, p);
  check.floating(LK_LINES(p, dy));
  check.shape(LK_LINES(p, dy), lk::shape_of(p.x));
  check.floating(LK_LINES(p, dx));
  check.shape(LK_LINES(p, dx), lk::shape_of(p.x));
  check.separate(LK_LINES(p, dx), {LK_LINES(p, dy), LK_LINES(p, x), LK_ARG(p, weight), LK_ARG(p, cos), LK_ARG(p, sin)});
}

}  // namespace

LK_DEFINE_OP(rms_norm_rope, lk_rms_norm_rope_params)
LK_DEFINE_OP(rms_norm_rope_backward, lk_rms_norm_rope_backward_params)
