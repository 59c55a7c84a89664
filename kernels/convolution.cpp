// lk_conv2d, lk_conv3d and their gradients: x [N, ..., C], weight [O, K..., C / groups], y [N, ..., O], zero padding.
#include "check.h"
#include "dispatch.h"

namespace {

// What the two have in common: for each axis between N and C its window's stride and padding.
struct Window {
  struct Axis {
    int32_t stride, before, after;
    const char *stride_name, *before_name, *after_name;
  };
  std::vector<Axis> axes;
  int32_t groups = 1;
};

template <class Params>
Window planar(const Params& p) {
  return {{{p.stride, p.pad_top, p.pad_bottom, "stride", "pad_top", "pad_bottom"},
           {p.stride, p.pad_left, p.pad_right, "stride", "pad_left", "pad_right"}},
          p.groups};
}

template <class Params>
Window spatial(const Params& p) {
  return {{{p.stride[0], p.pad[0], p.pad[1], "stride[0]", "pad[0]", "pad[1]"},
           {p.stride[1], p.pad[2], p.pad[3], "stride[1]", "pad[2]", "pad[3]"},
           {p.stride[2], p.pad[4], p.pad[5], "stride[2]", "pad[4]", "pad[5]"}}};
}

void check_window(const lk::Check& check, const Window& window) {
  const auto at_least = [&](int32_t lowest, const char* name, int32_t found) {
    check.require(
        found >= lowest, name, [&] { return "at least " + std::to_string(lowest); }, found);
  };
  for (const Window::Axis& a : window.axes) {
    at_least(1, a.stride_name, a.stride);
    at_least(0, a.before_name, a.before);
    at_least(0, a.after_name, a.after);
  }
  at_least(1, "groups", window.groups);
}

// The weight belongs to images of `channels` channels, y to images of shape x.
void check_shapes(const lk::Check& check, const Window& window, lk::Shape x, lk::Arg weight, lk::Arg y) {
  const auto rank = static_cast<int32_t>(window.axes.size()) + 2;
  check.floating(weight);
  check.rank(weight, rank, rank);
  const lk::Shape w = lk::shape_of(*weight.tensor);
  check.require(
      x.back() % window.groups == 0, "groups", [&] { return "a divisor of " + std::to_string(x.back()) + " channels"; },
      window.groups);
  check.require(
      w[0] % window.groups == 0, "groups", [&] { return "a divisor of " + std::to_string(w[0]) + " outputs"; },
      window.groups);
  check.shape(weight, lk::with_last(*weight.tensor, x.back() / window.groups));
  std::vector<int64_t> expected(x.begin(), x.end());
  expected.back() = w[0];
  for (size_t i = 0; i < window.axes.size(); ++i) {
    const Window::Axis& a = window.axes[i];
    const int64_t padded = x[i + 1] + a.before + a.after;
    check.require(
        w[i + 1] <= padded, weight.name,
        [&] {
          return "a window within the padded image, at most " + std::to_string(padded) + " on axis " +
                 std::to_string(i + 1);
        },
        w);
    expected[i + 1] = (padded - w[i + 1]) / a.stride + 1;
  }
  check.floating(y);
  check.shape(y, expected);
}

template <class Params>
void check_forward(const char* name, const Window& window, const Params& p) {
  const lk::Check check(name);
  const auto rank = static_cast<int32_t>(window.axes.size()) + 2;
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), rank, rank);
  check_window(check, window);
  check_shapes(check, window, lk::shape_of(p.x), LK_ARG(p, weight), LK_ARG(p, y));
  check.optional(LK_ARG(p, bias), {p.weight.dims[0]});
  check.separate(LK_ARG(p, y), {LK_ARG(p, x), LK_ARG(p, weight), LK_ARG(p, bias)});
}

template <class Params>
void check_backward(const char* name, const Window& window, const Params& p) {
  const lk::Check check(name);
  const auto rank = static_cast<int32_t>(window.axes.size()) + 2;
  check.floating(LK_ARG(p, dy));
  check.rank(LK_ARG(p, dy), rank, rank);
  check_window(check, window);
  const auto inputs = {LK_ARG(p, dy), LK_ARG(p, x), LK_ARG(p, weight)};
  if (lk::present(p.dx)) {
    check.floating(LK_ARG(p, dx));
    check.rank(LK_ARG(p, dx), rank, rank);
    check_shapes(check, window, lk::shape_of(p.dx), LK_ARG(p, weight), LK_ARG(p, dy));
    check.separate(LK_ARG(p, dx), inputs);
  }
  if (lk::present(p.dweight)) {
    check.floating(LK_ARG(p, x));
    check.rank(LK_ARG(p, x), rank, rank);
    check_shapes(check, window, lk::shape_of(p.x), LK_ARG(p, dweight), LK_ARG(p, dy));
    check.separate(LK_ARG(p, dweight), inputs);
    check.separate(LK_ARG(p, dweight), {LK_ARG(p, dx)});
  }
  if (lk::present(p.dbias)) {
    check.floating(LK_ARG(p, dbias));
    check.shape(LK_ARG(p, dbias), {p.dy.dims[rank - 1]});
    check.separate(LK_ARG(p, dbias), inputs);
    check.separate(LK_ARG(p, dbias), {LK_ARG(p, dx), LK_ARG(p, dweight)});
  }
}

void check_conv2d(const lk_conv2d_params& p) { check_forward("conv2d", planar(p), p); }
void check_conv2d_backward(const lk_conv2d_backward_params& p) { check_backward("conv2d_backward", planar(p), p); }
void check_conv3d(const lk_conv3d_params& p) { check_forward("conv3d", spatial(p), p); }
void check_conv3d_backward(const lk_conv3d_backward_params& p) { check_backward("conv3d_backward", spatial(p), p); }

}  // namespace

LK_DEFINE_OP(conv2d, lk_conv2d_params)
LK_DEFINE_OP(conv2d_backward, lk_conv2d_backward_params)
LK_DEFINE_OP(conv3d, lk_conv3d_params)
LK_DEFINE_OP(conv3d_backward, lk_conv3d_backward_params)
