// lk_random_normal: y = scale times standard normal values.
#include "check.h"
#include "dispatch.h"

namespace {

void check_random_normal(const lk_random_normal_params& p) {
  const lk::Check check("random_normal");
  check.floating(LK_ARG(p, y));
  check.finite("scale", p.scale);
}

}  // namespace

LK_DEFINE_OP(random_normal, lk_random_normal_params)
