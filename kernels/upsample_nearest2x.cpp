// lk_upsample_nearest2x and its gradient: [N, H, W, C] and [N, 2H, 2W, C].
#include "check.h"
#include "dispatch.h"

namespace {

void check_pair(const lk::Check& check, const lk_upsample_nearest2x_params& p, bool forward) {
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 4, 4);
  check.floating(LK_ARG(p, y));
  check.rank(LK_ARG(p, y), 4, 4);
  const int64_t* const x = p.x.dims;
  const int64_t* const y = p.y.dims;
  if (forward) {
    check.shape(LK_ARG(p, y), {x[0], 2 * x[1], 2 * x[2], x[3]});
  } else {
    check.shape(LK_ARG(p, x), {y[0], 2 * y[1], 2 * y[2], y[3]});
  }
  check.separate(LK_ARG(p, y), {LK_ARG(p, x)});
}

void check_upsample_nearest2x(const lk_upsample_nearest2x_params& p) {
  check_pair(lk::Check("upsample_nearest2x"), p, true);
}

void check_upsample_nearest2x_backward(const lk_upsample_nearest2x_params& p) {
  check_pair(lk::Check("upsample_nearest2x_backward"), p, false);
}

}  // namespace

LK_DEFINE_OP(upsample_nearest2x, lk_upsample_nearest2x_params)
LK_DEFINE_OP(upsample_nearest2x_backward, lk_upsample_nearest2x_params)
