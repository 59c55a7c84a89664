// lk_rms_norm and its gradients: x [..., C], statistics over the last axis; weight [C].
#include "check.h"
#include "dispatch.h"

namespace {

void check_rms_norm(const lk_rms_norm_params& p) {
  const lk::Check check("rms_norm");
  check.floating(LK_LINES(p, x));
  check.rank(LK_LINES(p, x), 1, LK_MAX_RANK);
  const int64_t channels = p.x.dims[p.x.rank - 1];
  check.optional(LK_ARG(p, weight), {channels});
  check.floating(LK_LINES(p, y));
  check.shape(LK_LINES(p, y), lk::shape_of(p.x));
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
  check.separate(LK_LINES(p, y), {LK_LINES(p, x), LK_ARG(p, weight)});
}

void check_rms_norm_backward(const lk_rms_norm_backward_params& p) {
  const lk::Check check("rms_norm_backward");
  check.floating(LK_LINES(p, x));
  check.rank(LK_LINES(p, x), 1, LK_MAX_RANK);
  check.floating(LK_LINES(p, dy));
  check.shape(LK_LINES(p, dy), lk::shape_of(p.x));
  const int64_t channels = p.x.dims[p.x.rank - 1];
  check.optional(LK_ARG(p, weight), {channels});
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
  check.optional(LK_LINES(p, dx), lk::shape_of(p.x));
  check.optional(LK_ARG(p, dweight), {channels});
  for (const lk::Arg& output : {LK_LINES(p, dx), LK_ARG(p, dweight)}) {
    check.separate(output, {LK_LINES(p, dy), LK_LINES(p, x), LK_ARG(p, weight)});
  }
  check.separate(LK_LINES(p, dx), {LK_ARG(p, dweight)});
  check.require(!lk::present(p.added) || lk::present(p.dx), "added", "dx beside it", "no dx");
  check.optional(LK_ARG(p, added), lk::shape_of(p.x));
  check.in_place_or_separate(LK_LINES(p, dx), LK_ARG(p, added));
}

}  // namespace

LK_DEFINE_OP(rms_norm, lk_rms_norm_params)
LK_DEFINE_OP(rms_norm_backward, lk_rms_norm_backward_params)
