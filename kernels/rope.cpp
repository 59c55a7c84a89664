// lk_rope: rotary embedding of x [B, S, H, D] by cos and sin [S, D/2] or [B, S, D/2], or as wide as D.
#include "check.h"
#include "dispatch.h"

namespace {

void check_rope(const lk_rope_params& p) {
  const lk::Check check("rope");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 4, 4);
  check.angles(LK_ARG(p, x), LK_ARG(p, cos), LK_ARG(p, sin));
  check.require(p.interleaved == 0 || p.cos.dims[p.cos.rank - 1] * 2 == p.x.dims[3], "cos",
                "an angle for each pair of neighbours", "one for each number");
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, cos), LK_ARG(p, sin)});
}

}  // namespace

LK_DEFINE_OP(rope, lk_rope_params)
