// lk_layer_norm and its gradients: x [..., C], statistics over the last axis; weight and bias [C].
#include "check.h"
#include "dispatch.h"

namespace {

void check_layer_norm(const lk_layer_norm_params& p) {
  const lk::Check check("layer_norm");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  const int64_t channels = p.x.dims[p.x.rank - 1];
  check.optional(LK_ARG(p, weight), {channels});
  check.optional(LK_ARG(p, bias), {channels});
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, weight), LK_ARG(p, bias)});
}

void check_layer_norm_backward(const lk_layer_norm_backward_params& p) {
  const lk::Check check("layer_norm_backward");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  check.floating(LK_ARG(p, dy));
  check.shape(LK_ARG(p, dy), lk::shape_of(p.x));
  const int64_t channels = p.x.dims[p.x.rank - 1];
  check.optional(LK_ARG(p, weight), {channels});
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
  check.optional(LK_ARG(p, dx), lk::shape_of(p.x));
  check.optional(LK_ARG(p, dweight), {channels});
  check.optional(LK_ARG(p, dbias), {channels});
  for (const lk::Arg& output : {LK_ARG(p, dx), LK_ARG(p, dweight), LK_ARG(p, dbias)}) {
    check.separate(output, {LK_ARG(p, dy), LK_ARG(p, x), LK_ARG(p, weight)});
  }
  check.separate(LK_ARG(p, dx), {LK_ARG(p, dweight), LK_ARG(p, dbias)});
  check.separate(LK_ARG(p, dweight), {LK_ARG(p, dbias)});
  check.require(!lk::present(p.added) || lk::present(p.dx), "added", "dx beside it", "no dx");
  check.optional(LK_ARG(p, added), lk::shape_of(p.x));
  check.in_place_or_separate(LK_ARG(p, dx), LK_ARG(p, added));
}

}  // namespace

LK_DEFINE_OP(layer_norm, lk_layer_norm_params)
LK_DEFINE_OP(layer_norm_backward, lk_layer_norm_backward_params)
