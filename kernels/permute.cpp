// lk_permute: y = x with its axes reordered, any type.
#include "check.h"
#include "dispatch.h"

namespace {

void check_permute(const lk_permute_params& p) {
  const lk::Check check("permute");
  check.tensor(LK_ARG(p, x));
  std::vector<int64_t> expected;
  uint32_t seen = 0;
  for (int32_t i = 0; i < p.x.rank; ++i) {
    const int32_t axis = p.axes[i];
    check.require(
        axis >= 0 && axis < p.x.rank && (seen >> axis & 1u) == 0, "axes",
        [&] { return "a permutation of the " + std::to_string(p.x.rank) + " axes"; },
        [&] { return lk::shape_text(std::vector<int64_t>(p.axes, p.axes + p.x.rank)); });
    seen |= 1u << axis;
    expected.push_back(p.x.dims[axis]);
  }
  check.dtype(LK_ARG(p, y), p.x.dtype);
  check.shape(LK_ARG(p, y), expected);
  check.separate(LK_ARG(p, y), {LK_ARG(p, x)});
}

}  // namespace

LK_DEFINE_OP(permute, lk_permute_params)
