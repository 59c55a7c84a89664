// lk_loss_scale_update: dynamic loss scaling, state f32 [2] = scale, clean steps.
#include "check.h"
#include "dispatch.h"

namespace {

void check_loss_scale_update(const lk_loss_scale_update_params& p) {
  const lk::Check check("loss_scale_update");
  check.scalar_f32(LK_ARG(p, norm));
  check.dtype(LK_ARG(p, state), LK_F32);
  check.shape(LK_ARG(p, state), {2});
  check.positive("growth", p.growth);
  check.positive("backoff", p.backoff);
  check.positive("largest", p.largest);
  check.require(p.growth_interval >= 1, "growth_interval", "at least 1", p.growth_interval);
  check.separate(LK_ARG(p, state), {LK_ARG(p, norm)});
}

}  // namespace

LK_DEFINE_OP(loss_scale_update, lk_loss_scale_update_params)
