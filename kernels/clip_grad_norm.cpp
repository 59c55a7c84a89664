// lk_clip_grad_norm: the norm of all gradients together, which are then unscaled and clipped in place.
#include "check.h"
#include "dispatch.h"

namespace {

void check_clip_grad_norm(const lk_clip_grad_norm_params& p) {
  const lk::Check check("clip_grad_norm");
  check.require(p.count >= 0, "count", "at least 0", p.count);
  check.require(p.gradients != nullptr || p.count == 0, "gradients", "an array of tensors", "NULL");
  check.scalar_f32(LK_ARG(p, norm));
  for (int64_t i = 0; i < p.count; ++i) {
    const std::string name = "gradients[" + std::to_string(i) + "]";
    check.dtype({name.c_str(), &p.gradients[i]}, LK_F32);
    check.separate(LK_ARG(p, norm), {{name.c_str(), &p.gradients[i]}});
  }
  if (lk::present(p.loss_scale)) {
    check.scalar_f32(LK_ARG(p, loss_scale));
    check.separate(LK_ARG(p, norm), {LK_ARG(p, loss_scale)});
  }
}

}  // namespace

LK_DEFINE_OP(clip_grad_norm, lk_clip_grad_norm_params)
