// lk_adamw_update: one step of Adam with decoupled weight decay; p, g, m, v f32 of one shape.
#include "check.h"
#include "dispatch.h"

namespace {

void check_adamw_update(const lk_adamw_update_params& p) {
  const lk::Check check("adamw_update");
  check.dtype(LK_ARG(p, p), LK_F32);
  for (const lk::Arg& arg : {LK_ARG(p, g), LK_ARG(p, m), LK_ARG(p, v)}) {
    check.dtype(arg, LK_F32);
    check.shape(arg, lk::shape_of(p.p));
  }
  check.scalar_f32(LK_ARG(p, lr));
  check.scalar_f32(LK_ARG(p, step));
  for (const lk::Arg& output : {LK_ARG(p, p), LK_ARG(p, m), LK_ARG(p, v)}) {
    check.separate(output, {LK_ARG(p, g), LK_ARG(p, lr), LK_ARG(p, step)});
  }
  check.separate(LK_ARG(p, p), {LK_ARG(p, m), LK_ARG(p, v)});
  check.separate(LK_ARG(p, m), {LK_ARG(p, v)});
  check.require(p.beta1 >= 0 && p.beta1 < 1, "beta1", "0 <= beta1 < 1", p.beta1);
  check.require(p.beta2 >= 0 && p.beta2 < 1, "beta2", "0 <= beta2 < 1", p.beta2);
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
  check.finite("weight_decay", p.weight_decay);
}

}  // namespace

LK_DEFINE_OP(adamw_update, lk_adamw_update_params)
