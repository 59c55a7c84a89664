// lk_matmul: c [..., m, n] = op(a) op(b) for each of the leading axes, which a or b may have once for all, and c as a
// sum.
#include <algorithm>

#include "check.h"
#include "dispatch.h"

namespace {

// Whether there is one matrix for all batches.
bool is_single(const lk_tensor& t) {
  return std::all_of(t.dims, t.dims + t.rank - 2, [](int64_t dim) { return dim == 1; });
}

void check_matmul(const lk_matmul_params& p) {
  const lk::Check check("matmul");
  check.floating(LK_ARG(p, a));
  check.rank(LK_ARG(p, a), 2, LK_MAX_RANK);
  check.floating(LK_ARG(p, b));
  const int32_t rank = p.a.rank;
  check.rank(LK_ARG(p, b), rank, rank);
  const int64_t m = p.a.dims[rank - (p.transpose_a ? 1 : 2)], k = p.a.dims[rank - (p.transpose_a ? 2 : 1)];
  const int64_t n = p.b.dims[rank - (p.transpose_b ? 2 : 1)];
  const auto matrices = [&](const lk_tensor& leading, int64_t rows, int64_t columns) {
    std::vector<int64_t> shape(leading.dims, leading.dims + rank);
    shape[static_cast<size_t>(rank - 2)] = rows;
    shape[static_cast<size_t>(rank - 1)] = columns;
    return shape;
  };
  const lk_tensor& batches = is_single(p.a) ? p.b : p.a;
  check.shape(LK_ARG(p, b), matrices(is_single(p.b) ? p.b : batches, p.transpose_b ? n : k, p.transpose_b ? k : n));
  check.floating(LK_ARG(p, c));
  check.rank(LK_ARG(p, c), rank, rank);
  check.shape(LK_ARG(p, c), matrices(is_single(p.c) ? p.c : batches, m, n));
  check.separate(LK_ARG(p, c), {LK_ARG(p, a), LK_ARG(p, b)});
}

}  // namespace

LK_DEFINE_OP(matmul, lk_matmul_params)
