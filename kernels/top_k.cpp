// lk_top_k and its gradient, over the last axis.
#include "check.h"
#include "dispatch.h"

namespace {

// values and index [..., k] of x [..., N].
void check_chosen(const lk::Check& check, lk::Arg x, lk::Arg values, lk::Arg index) {
  check.floating(x);
  check.rank(x, 1, LK_MAX_RANK);
  check.floating(values);
  check.rank(values, x.tensor->rank, x.tensor->rank);
  const int64_t size = lk::shape_of(*x.tensor).back(), k = lk::shape_of(*values.tensor).back();
  check.require(
      k <= size, values.name, [&] { return "at most " + std::to_string(size) + " of the last axis"; }, k);
  check.shape(values, lk::with_last(*x.tensor, k));
  check.dtype(index, LK_I32);
  check.shape(index, lk::with_last(*x.tensor, k));
}

void check_top_k(const lk_top_k_params& p) {
  const lk::Check check("top_k");
  check_chosen(check, LK_ARG(p, x), LK_ARG(p, values), LK_ARG(p, index));
  check.separate(LK_ARG(p, values), {LK_ARG(p, x), LK_ARG(p, index)});
  check.separate(LK_ARG(p, index), {LK_ARG(p, x)});
}

void check_top_k_backward(const lk_top_k_backward_params& p) {
  const lk::Check check("top_k_backward");
  check_chosen(check, LK_ARG(p, dx), LK_ARG(p, dvalues), LK_ARG(p, index));
  check.separate(LK_ARG(p, dx), {LK_ARG(p, dvalues), LK_ARG(p, index)});
}

}  // namespace

LK_DEFINE_OP(top_k, lk_top_k_params)
LK_DEFINE_OP(top_k_backward, lk_top_k_backward_params)
