// lk_find_first: the first place of a value in each row of ids [B, L].
#include "check.h"
#include "dispatch.h"

namespace {

void check_find_first(const lk_find_first_params& p) {
  const lk::Check check("find_first");
  check.dtype(LK_ARG(p, ids), LK_I32);
  check.rank(LK_ARG(p, ids), 2, 2);
  check.dtype(LK_ARG(p, index), LK_I32);
  check.shape(LK_ARG(p, index), {p.ids.dims[0]});
  check.separate(LK_ARG(p, index), {LK_ARG(p, ids)});
}

}  // namespace

LK_DEFINE_OP(find_first, lk_find_first_params)
