// lk_softmax and its gradient, over the last axis.
#include "check.h"
#include "dispatch.h"

namespace {

void check_softmax(const lk_softmax_params& p) {
  const lk::Check check("softmax");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x)});
}

void check_softmax_backward(const lk_softmax_backward_params& p) {
  const lk::Check check("softmax_backward");
  check.floating(LK_ARG(p, dy));
  check.rank(LK_ARG(p, dy), 1, LK_MAX_RANK);
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.dy));
  check.floating(LK_ARG(p, dx));
  check.shape(LK_ARG(p, dx), lk::shape_of(p.dy));
  check.separate(LK_ARG(p, dx), {LK_ARG(p, dy), LK_ARG(p, y)});
}

}  // namespace

LK_DEFINE_OP(softmax, lk_softmax_params)
LK_DEFINE_OP(softmax_backward, lk_softmax_backward_params)
