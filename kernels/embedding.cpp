// lk_embedding: y [..., D] = rows of table [V, D] chosen by ids [...].
#include "check.h"
#include "dispatch.h"

namespace {

void check_embedding(const lk_embedding_params& p) {
  const lk::Check check("embedding");
  check.dtype(LK_ARG(p, ids), LK_I32);
  check.rank(LK_ARG(p, ids), 0, LK_MAX_RANK - 1);
  check.values(LK_ARG(p, table));
  check.rank(LK_ARG(p, table), 2, 2);
  std::vector<int64_t> expected(p.ids.dims, p.ids.dims + p.ids.rank);
  expected.push_back(p.table.dims[1]);
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), expected);
  check.separate(LK_ARG(p, y), {LK_ARG(p, ids), LK_ARG(p, table)});
}

}  // namespace

LK_DEFINE_OP(embedding, lk_embedding_params)
