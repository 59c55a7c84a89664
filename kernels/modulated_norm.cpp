// lk_modulated_norm and its gradients: x [B, S, C], statistics over the last axis; scale and shift [B, C]; weight [C].
#include "check.h"
#include "dispatch.h"

namespace {

// The kind of the norm, and its weight, which layer norm has none of.
template <class Params>
void check_norm(const lk::Check& check, const Params& p) {
  check.require(p.rms == 0 || p.rms == 1, "rms", "0 or 1", p.rms);
  check.optional(LK_ARG(p, weight), {p.x.dims[2]});
  check.require(p.rms == 1 || !lk::present(p.weight), "weight", "data NULL where rms is 0", "data");
  check.require(p.eps >= 0, "eps", "at least 0", p.eps);
}

void check_modulated_norm(const lk_modulated_norm_params& p) {
  const lk::Check check("modulated_norm");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 3, 3);
  check_norm(check, p);
  check.tensor(LK_ARG(p, scale));
  if (p.rms == 0) check.tensor(LK_ARG(p, shift));
  for (const lk::Arg& row : {LK_ARG(p, scale), LK_ARG(p, shift)}) check.optional_per_image(row, p.x);
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, scale), LK_ARG(p, shift), LK_ARG(p, weight)});
}

void check_modulated_norm_backward(const lk_modulated_norm_backward_params& p) {
  const lk::Check check("modulated_norm_backward");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 3, 3);
  check_norm(check, p);
  check.floating(LK_ARG(p, dy));
  check.shape(LK_ARG(p, dy), lk::shape_of(p.x));
  check.optional(LK_ARG(p, dx), lk::shape_of(p.x));
  if (lk::present(p.dx)) check.tensor(LK_ARG(p, scale));
  check.optional_per_image(LK_ARG(p, scale), p.x);
  check.optional_per_image(LK_ARG(p, dscale), p.x);
  check.optional_per_image(LK_ARG(p, dshift), p.x);
  for (const lk::Arg& output : {LK_ARG(p, dx), LK_ARG(p, dscale), LK_ARG(p, dshift)}) {
    check.separate(output, {LK_ARG(p, dy), LK_ARG(p, x), LK_ARG(p, scale), LK_ARG(p, weight)});
  }
  check.separate(LK_ARG(p, dx), {LK_ARG(p, dscale), LK_ARG(p, dshift)});
  check.separate(LK_ARG(p, dscale), {LK_ARG(p, dshift)});
  check.require(!lk::present(p.added) || lk::present(p.dx), "added", "dx beside it", "no dx");
  check.optional(LK_ARG(p, added), lk::shape_of(p.x));
  check.in_place_or_separate(LK_ARG(p, dx), LK_ARG(p, added));
}

}  // namespace

LK_DEFINE_OP(modulated_norm, lk_modulated_norm_params)
LK_DEFINE_OP(modulated_norm_backward, lk_modulated_norm_backward_params)
