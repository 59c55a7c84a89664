// lk_rope: rotary embedding of x [B, S, H, D] by cos and sin [S, D/2] or [B, S, D/2].
#include "check.h"
#include "dispatch.h"

namespace {

void check_rope(const lk_rope_params& p) {
  const lk::Check check("rope");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 4, 4);
  const int64_t batch = p.x.dims[0], length = p.x.dims[1], half = p.x.dims[3] / 2;
  check.require(p.x.dims[3] % 2 == 0, "x", "an even last axis", lk::shape_text(lk::shape_of(p.x)));
  check.dtype(LK_ARG(p, cos), LK_F32);
  check.rank(LK_ARG(p, cos), 2, 3);
  if (p.cos.rank == 2) {
    check.shape(LK_ARG(p, cos), {length, half});
  } else {
    check.shape(LK_ARG(p, cos), {batch, length, half});
  }
  check.dtype(LK_ARG(p, sin), LK_F32);
  check.shape(LK_ARG(p, sin), lk::shape_of(p.cos));
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, cos), LK_ARG(p, sin)});
}

}  // namespace

LK_DEFINE_OP(rope, lk_rope_params)
