// lk_matmul: c [..., m, n] = op(a) op(b) for each of the equal leading axes.
#include "check.h"
#include "dispatch.h"

namespace {

void check_matmul(const lk_matmul_params& p) {
  const lk::Check check("matmul");
  check.floating(LK_ARG(p, a));
  check.rank(LK_ARG(p, a), 2, LK_MAX_RANK);
  check.floating(LK_ARG(p, b));
  const int32_t rank = p.a.rank;
  check.rank(LK_ARG(p, b), rank, rank);
  const int64_t m = p.a.dims[rank - (p.transpose_a ? 1 : 2)], k = p.a.dims[rank - (p.transpose_a ? 2 : 1)];
  const int64_t n = p.b.dims[rank - (p.transpose_b ? 2 : 1)];
  std::vector<int64_t> expected(p.a.dims, p.a.dims + rank);
  expected[rank - 2] = p.transpose_b ? n : k;
  expected[rank - 1] = p.transpose_b ? k : n;
  check.shape(LK_ARG(p, b), expected);
  expected[rank - 2] = m;
  expected[rank - 1] = n;
  check.floating(LK_ARG(p, c));
  check.shape(LK_ARG(p, c), expected);
  check.separate(LK_ARG(p, c), {LK_ARG(p, a), LK_ARG(p, b)});
}

}  // namespace

LK_DEFINE_OP(matmul, lk_matmul_params)
