// lk_loss and its gradient: the weighted mean of a pointwise loss, weight by the first axis or by all but the last.
#include "check.h"
#include "dispatch.h"

namespace {

template <class Params>
void check_pair(const lk::Check& check, const Params& p) {
  check.require(p.kind >= LK_MSE && p.kind <= LK_PSEUDO_HUBER, "kind", "0 to 3", p.kind);
  if ((p.kind == LK_HUBER || p.kind == LK_PSEUDO_HUBER) && !lk::present(p.deltas)) check.positive("delta", p.delta);
  check.floating(LK_ARG(p, prediction));
  check.rank(LK_ARG(p, prediction), 1, LK_MAX_RANK);
  check.floating(LK_ARG(p, target));
  check.shape(LK_ARG(p, target), lk::shape_of(p.prediction));
  if (lk::present(p.weight)) {
    check.dtype(LK_ARG(p, weight), LK_F32);
    if (p.weight.rank == 1)
      check.shape(LK_ARG(p, weight), {p.prediction.dims[0]});
    else
      check.shape(LK_ARG(p, weight), lk::with_last(p.prediction, 1));
  }
  if (lk::present(p.deltas)) {
    check.dtype(LK_ARG(p, deltas), LK_F32);
    check.shape(LK_ARG(p, deltas), {p.prediction.dims[0]});
  }
}

void check_loss(const lk_loss_params& p) {
  const lk::Check check("loss");
  check_pair(check, p);
  check.scalar_f32(LK_ARG(p, loss));
  check.separate(LK_ARG(p, loss), {LK_ARG(p, prediction), LK_ARG(p, target), LK_ARG(p, weight), LK_ARG(p, deltas)});
}

void check_loss_backward(const lk_loss_backward_params& p) {
  const lk::Check check("loss_backward");
  check_pair(check, p);
  check.scalar_f32(LK_ARG(p, dloss));
  check.floating(LK_ARG(p, dprediction));
  check.shape(LK_ARG(p, dprediction), lk::shape_of(p.prediction));
  check.separate(LK_ARG(p, dprediction),
                 {LK_ARG(p, dloss), LK_ARG(p, prediction), LK_ARG(p, target), LK_ARG(p, weight), LK_ARG(p, deltas)});
}

}  // namespace

LK_DEFINE_OP(loss, lk_loss_params)
LK_DEFINE_OP(loss_backward, lk_loss_backward_params)
