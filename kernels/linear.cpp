// lk_linear and its gradients: x [..., in], weight [out, in], y [..., out].
#include "check.h"
#include "dispatch.h"

namespace {

void check_linear(const lk_linear_params& p) {
  const lk::Check check("linear");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  check.weight(LK_ARG(p, weight), LK_ARG(p, weight_scale));
  check.products(p.products, LK_ARG(p, weight));
  check.rank(LK_ARG(p, weight), 2, 2);
  const int64_t in = p.x.dims[p.x.rank - 1], out = p.weight.dims[0];
  check.shape(LK_ARG(p, weight), {out, in});
  check.optional(LK_ARG(p, bias), {out});
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::with_last(p.x, out));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, weight), LK_ARG(p, weight_scale), LK_ARG(p, bias)});
}

void check_linear_backward(const lk_linear_backward_params& p) {
  const lk::Check check("linear_backward");
  check.floating(LK_ARG(p, dy));
  check.rank(LK_ARG(p, dy), 1, LK_MAX_RANK);
  const int64_t out = p.dy.dims[p.dy.rank - 1];
  const auto inputs = {LK_ARG(p, dy), LK_ARG(p, x), LK_ARG(p, weight), LK_ARG(p, weight_scale)};
  if (lk::present(p.dx)) {
    check.weight(LK_ARG(p, weight), LK_ARG(p, weight_scale));
    check.products(p.products, LK_ARG(p, weight));
    check.rank(LK_ARG(p, weight), 2, 2);
    check.shape(LK_ARG(p, weight), {out, p.weight.dims[1]});
    check.floating(LK_ARG(p, dx));
    check.shape(LK_ARG(p, dx), lk::with_last(p.dy, p.weight.dims[1]));
    check.separate(LK_ARG(p, dx), inputs);
  }
  if (lk::present(p.dweight)) {
    check.floating(LK_ARG(p, x));
    check.rank(LK_ARG(p, x), p.dy.rank, p.dy.rank);
    const int64_t in = p.x.dims[p.x.rank - 1];
    check.shape(LK_ARG(p, x), lk::with_last(p.dy, in));
    check.floating(LK_ARG(p, dweight));
    check.shape(LK_ARG(p, dweight), {out, in});
    check.separate(LK_ARG(p, dweight), inputs);
    check.separate(LK_ARG(p, dweight), {LK_ARG(p, dx)});
  }
  if (lk::present(p.dbias)) {
    check.floating(LK_ARG(p, dbias));
    check.shape(LK_ARG(p, dbias), {out});
    check.separate(LK_ARG(p, dbias), inputs);
    check.separate(LK_ARG(p, dbias), {LK_ARG(p, dx), LK_ARG(p, dweight)});
  }
}

}  // namespace

LK_DEFINE_OP(linear, lk_linear_params)
LK_DEFINE_OP(linear_backward, lk_linear_backward_params)
