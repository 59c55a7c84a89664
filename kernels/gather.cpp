// lk_gather and its gradient: y [B, D] = x [B, index[b], D].
#include "check.h"
#include "dispatch.h"

namespace {

void check_gather(const lk_gather_params& p) {
  const lk::Check check("gather");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 3, 3);
  check.dtype(LK_ARG(p, index), LK_I32);
  check.shape(LK_ARG(p, index), {p.x.dims[0]});
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), {p.x.dims[0], p.x.dims[2]});
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, index)});
}

void check_gather_backward(const lk_gather_backward_params& p) {
  const lk::Check check("gather_backward");
  check.floating(LK_ARG(p, dx));
  check.rank(LK_ARG(p, dx), 3, 3);
  check.dtype(LK_ARG(p, index), LK_I32);
  check.shape(LK_ARG(p, index), {p.dx.dims[0]});
  check.floating(LK_ARG(p, dy));
  check.shape(LK_ARG(p, dy), {p.dx.dims[0], p.dx.dims[2]});
  check.separate(LK_ARG(p, dx), {LK_ARG(p, dy), LK_ARG(p, index)});
}

}  // namespace

LK_DEFINE_OP(gather, lk_gather_params)
LK_DEFINE_OP(gather_backward, lk_gather_backward_params)
