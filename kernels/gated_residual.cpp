// lk_gated_residual and its gradients: x and z [B, S, C], gate [B, C]; weight [C], of the norm of z.
#include "check.h"
#include "dispatch.h"

namespace {

// Whether z is normed, and the norm's weight.
template <class Params>
void check_norm(const lk::Check& check, const Params& p, int64_t channels) {
  check.require(p.rms == 0 || p.rms == 1, "rms", "0 or 1", p.rms);
  check.optional(LK_ARG(p, weight), {channels});
  check.require(p.rms == 1 || !lk::present(p.weight), "weight", "data NULL where rms is 0", "data");
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
}

void check_gated_residual(const lk_gated_residual_params& p) {
  const lk::Check check("gated_residual");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 3, 3);
  check_norm(check, p, p.x.dims[2]);
  check.tensor(LK_ARG(p, gate));
  check.optional_per_image(LK_ARG(p, gate), p.x);
  check.floating(LK_ARG(p, z));
  check.shape(LK_ARG(p, z), lk::shape_of(p.x));
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.in_place_or_separate(LK_ARG(p, y), LK_ARG(p, x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, gate), LK_ARG(p, z), LK_ARG(p, weight)});
}

void check_gated_residual_backward(const lk_gated_residual_backward_params& p) {
  const lk::Check check("gated_residual_backward");
  check.floating(LK_ARG(p, dy));
  check.rank(LK_ARG(p, dy), 3, 3);
  check_norm(check, p, p.dy.dims[2]);
  check.optional(LK_ARG(p, dz), lk::shape_of(p.dy));
  check.optional_per_image(LK_ARG(p, dgate), p.dy);
  if (lk::present(p.dz)) check.tensor(LK_ARG(p, gate));
  check.optional_per_image(LK_ARG(p, gate), p.dy);
  if (lk::present(p.dgate) || (p.rms == 1 && lk::present(p.dz))) check.tensor(LK_ARG(p, z));
  check.optional(LK_ARG(p, z), lk::shape_of(p.dy));
  for (const lk::Arg& output : {LK_ARG(p, dz), LK_ARG(p, dgate)}) {
    check.separate(output, {LK_ARG(p, dy), LK_ARG(p, gate), LK_ARG(p, z), LK_ARG(p, weight)});
  }
  check.separate(LK_ARG(p, dz), {LK_ARG(p, dgate)});
}

}  // namespace

LK_DEFINE_OP(gated_residual, lk_gated_residual_params)
LK_DEFINE_OP(gated_residual_backward, lk_gated_residual_backward_params)
