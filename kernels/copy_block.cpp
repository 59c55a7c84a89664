// lk_copy_block: a rectangular block of x into y.
#include "check.h"
#include "dispatch.h"

namespace {

void check_copy_block(const lk_copy_block_params& p) {
  const lk::Check check("copy_block");
  check.tensor(LK_LINES(p, x));
  check.dtype(LK_LINES(p, y), p.x.dtype);
  check.rank(LK_LINES(p, y), p.x.rank, p.x.rank);
  const auto within = [&](const char* name, const int64_t* offset, const lk_tensor& tensor) {
    for (int32_t i = 0; i < tensor.rank; ++i) {
      check.require(
          offset[i] >= 0 && p.extent[i] <= tensor.dims[i] && offset[i] <= tensor.dims[i] - p.extent[i], name,
          [&] { return "a block within " + lk::shape_text(lk::shape_of(tensor)); },
          [&] {
            return "offset " + std::to_string(offset[i]) + " and extent " + std::to_string(p.extent[i]) + " on axis " +
                   std::to_string(i);
          });
    }
  };
  for (int32_t i = 0; i < p.x.rank; ++i) {
    check.require(p.extent[i] >= 0, "extent", "at least 0", p.extent[i]);
  }
  check.require(p.x_step >= 0, "x_step", "at least 0", p.x_step);
  within("x_offset", p.x_offset, p.x);
  const int32_t last = p.x.rank - 1;
  if (p.x_step > 1 && p.extent[last] > 0) {
    check.require((p.extent[last] - 1) * p.x_step < p.x.dims[last] - p.x_offset[last], "x_step",
                  [&] { return "steps within " + lk::shape_text(lk::shape_of(p.x)); }, p.x_step);
  }
  within("y_offset", p.y_offset, p.y);
  check.separate(LK_LINES(p, y), {LK_LINES(p, x)});
}

}  // namespace

LK_DEFINE_OP(copy_block, lk_copy_block_params)
