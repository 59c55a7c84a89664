// lk_gather and its gradient: y [B, K, ...] = x [B, index[b, k], ...].
#include "check.h"
#include "dispatch.h"

namespace {

// x [B, S, ...] and index [B] or [B, K]: the shape of the rows that are taken.
std::vector<int64_t> taken_shape(const lk::Check& check, lk::Arg x, lk::Arg index) {
  check.rank(x, 2, LK_MAX_RANK);
  check.dtype(index, LK_I32);
  check.rank(index, 1, 2);
  const lk::Shape rows = lk::shape_of(*x.tensor), places = lk::shape_of(*index.tensor);
  check.require(
      places[0] == rows[0], index.name, [&] { return std::to_string(rows[0]) + " samples"; }, places);
  std::vector<int64_t> shape(places.begin(), places.end());
  shape.insert(shape.end(), rows.begin() + 2, rows.end());
  return shape;
}

void check_gather(const lk_gather_params& p) {
  const lk::Check check("gather");
  check.number(LK_ARG(p, x));
  check.number_like(LK_ARG(p, y), LK_ARG(p, x));
  check.shape(LK_ARG(p, y), taken_shape(check, LK_ARG(p, x), LK_ARG(p, index)));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, index)});
}

void check_gather_backward(const lk_gather_backward_params& p) {
  const lk::Check check("gather_backward");
  check.floating(LK_ARG(p, dx));
  check.floating(LK_ARG(p, dy));
  check.shape(LK_ARG(p, dy), taken_shape(check, LK_ARG(p, dx), LK_ARG(p, index)));
  check.separate(LK_ARG(p, dx), {LK_ARG(p, dy), LK_ARG(p, index)});
}

}  // namespace

LK_DEFINE_OP(gather, lk_gather_params)
LK_DEFINE_OP(gather_backward, lk_gather_backward_params)
