// lk_conv2d and its gradients: x [N, H, W, C], weight [O, KH, KW, C], y [N, OH, OW, O], zero padding.
#include "check.h"
#include "dispatch.h"

namespace {

template <class Params>
void check_window(const lk::Check& check, const Params& p) {
  check.require(p.stride >= 1, "stride", "at least 1", std::to_string(p.stride));
  check.require(p.pad_top >= 0, "pad_top", "at least 0", std::to_string(p.pad_top));
  check.require(p.pad_left >= 0, "pad_left", "at least 0", std::to_string(p.pad_left));
  check.require(p.pad_bottom >= 0, "pad_bottom", "at least 0", std::to_string(p.pad_bottom));
  check.require(p.pad_right >= 0, "pad_right", "at least 0", std::to_string(p.pad_right));
}

// The shape of the result of x [N, H, W, C] under weight [O, KH, KW, C].
template <class Params>
std::vector<int64_t> output_shape(const lk::Check& check, const Params& p, lk::Shape x, lk::Shape weight) {
  const int64_t height = x[1] + p.pad_top + p.pad_bottom, width = x[2] + p.pad_left + p.pad_right;
  const std::string padded = lk::shape_text(std::vector<int64_t>{height, width});
  check.require(weight[1] <= height && weight[2] <= width, "weight", "a window within the padded image " + padded,
                lk::shape_text(weight));
  return {x[0], (height - weight[1]) / p.stride + 1, (width - weight[2]) / p.stride + 1, weight[0]};
}

void check_conv2d(const lk_conv2d_params& p) {
  const lk::Check check("conv2d");
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 4, 4);
  check.floating(LK_ARG(p, weight));
  check.rank(LK_ARG(p, weight), 4, 4);
  check.shape(LK_ARG(p, weight), {p.weight.dims[0], p.weight.dims[1], p.weight.dims[2], p.x.dims[3]});
  check_window(check, p);
  check.optional(LK_ARG(p, bias), {p.weight.dims[0]});
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), output_shape(check, p, lk::shape_of(p.x), lk::shape_of(p.weight)));
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, weight), LK_ARG(p, bias)});
}

void check_conv2d_backward(const lk_conv2d_backward_params& p) {
  const lk::Check check("conv2d_backward");
  check.floating(LK_ARG(p, dy));
  check.rank(LK_ARG(p, dy), 4, 4);
  check_window(check, p);
  const auto inputs = {LK_ARG(p, dy), LK_ARG(p, x), LK_ARG(p, weight)};
  if (lk::present(p.dx)) {
    check.floating(LK_ARG(p, weight));
    check.rank(LK_ARG(p, weight), 4, 4);
    check.floating(LK_ARG(p, dx));
    check.rank(LK_ARG(p, dx), 4, 4);
    check.shape(LK_ARG(p, dx), {p.dx.dims[0], p.dx.dims[1], p.dx.dims[2], p.weight.dims[3]});
    check.shape(LK_ARG(p, dy), output_shape(check, p, lk::shape_of(p.dx), lk::shape_of(p.weight)));
    check.separate(LK_ARG(p, dx), inputs);
  }
  if (lk::present(p.dweight)) {
    check.floating(LK_ARG(p, x));
    check.rank(LK_ARG(p, x), 4, 4);
    check.floating(LK_ARG(p, dweight));
    check.rank(LK_ARG(p, dweight), 4, 4);
    check.shape(LK_ARG(p, dweight), {p.dy.dims[3], p.dweight.dims[1], p.dweight.dims[2], p.x.dims[3]});
    check.shape(LK_ARG(p, dy), output_shape(check, p, lk::shape_of(p.x), lk::shape_of(p.dweight)));
    check.separate(LK_ARG(p, dweight), inputs);
    check.separate(LK_ARG(p, dweight), {LK_ARG(p, dx)});
  }
  if (lk::present(p.dbias)) {
    check.floating(LK_ARG(p, dbias));
    check.shape(LK_ARG(p, dbias), {p.dy.dims[3]});
    check.separate(LK_ARG(p, dbias), inputs);
    check.separate(LK_ARG(p, dbias), {LK_ARG(p, dx), LK_ARG(p, dweight)});
  }
}

}  // namespace

LK_DEFINE_OP(conv2d, lk_conv2d_params)
LK_DEFINE_OP(conv2d_backward, lk_conv2d_backward_params)
