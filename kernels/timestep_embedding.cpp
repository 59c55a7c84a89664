// lk_timestep_embedding: t f32 [B] -> y [B, dim], sinusoids of geometrically spaced frequencies.
#include "check.h"
#include "dispatch.h"

namespace {

void check_timestep_embedding(const lk_timestep_embedding_params& p) {
  const lk::Check check("timestep_embedding");
  check.dtype(LK_ARG(p, t), LK_F32);
  check.rank(LK_ARG(p, t), 1, 1);
  check.floating(LK_ARG(p, y));
  check.rank(LK_ARG(p, y), 2, 2);
  check.shape(LK_ARG(p, y), {p.t.dims[0], p.y.dims[1]});
  check.require(p.y.dims[1] % 2 == 0, "y", "an even last axis", lk::shape_of(p.y));
  check.positive("max_period", p.max_period);
  check.finite("scale", p.scale);
  check.separate(LK_ARG(p, y), {LK_ARG(p, t)});
}

}  // namespace

LK_DEFINE_OP(timestep_embedding, lk_timestep_embedding_params)
