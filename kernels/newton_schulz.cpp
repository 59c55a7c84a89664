// lk_newton_schulz: the iteration that takes singular values to about 1.
#include <algorithm>

#include "check.h"
#include "dispatch.h"

namespace {

void check_newton_schulz(const lk_newton_schulz_params& p) {
  const lk::Check check("newton_schulz");
  check.dtype(LK_ARG(p, x), LK_F32);
  check.rank(LK_ARG(p, x), 2, LK_MAX_RANK);
  const int64_t side = std::min(p.x.dims[p.x.rank - 2], p.x.dims[p.x.rank - 1]);
  check.require(
      side <= LK_NEWTON_SCHULZ_MAX_SIDE, "x",
      [&] { return "a side of at most " + std::to_string(LK_NEWTON_SCHULZ_MAX_SIDE); }, lk::shape_of(p.x));
  std::vector<int64_t> single(p.x.dims, p.x.dims + p.x.rank);
  single[single.size() - 2] = single[single.size() - 1] = 1;
  check.dtype(LK_ARG(p, scale), LK_F32);
  check.shape(LK_ARG(p, scale), single);
  check.dtype(LK_ARG(p, y), LK_F32);
  check.shape(LK_ARG(p, y), lk::shape_of(p.x));
  check.finite("a", p.a);
  check.finite("b", p.b);
  check.finite("c", p.c);
  check.require(p.steps >= 1, "steps", "at least 1", p.steps);
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, scale)});
}

}  // namespace

LK_DEFINE_OP(newton_schulz, lk_newton_schulz_params)
