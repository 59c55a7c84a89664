// conv2d: x [N, H, W, C], weight [O, C / groups, KH, KW]; conv3d: x [N, T, H, W, C], weight [O, C, KT, KH, KW]; zero
// padding. In memory the weights are [O, KH, KW, C / groups] and [O, KT, KH, KW, C] (ValueInfo::channels_last).
#include <algorithm>

#include "ops/ops.h"

namespace lh {
namespace {

// The kernels' view of a weight whose logical dims are [O, C, K...].
lk_tensor kernel_weight(lk_tensor weight) {
  std::rotate(weight.dims + 1, weight.dims + 2, weight.dims + weight.rank);
  return weight;
}

// For each axis between N and C of x: the stride, and the padding on both sides.
struct Axis {
  int64_t stride, before, after;
};

std::vector<Desc> infer(const Infer& a, const std::vector<Axis>& axes, int64_t groups) {
  const Desc &x = required(a, 0), &w = required(a, 1);
  const auto rank = static_cast<int64_t>(axes.size()) + 2;
  expect_weight(w, "weight");
  expect(x.shape.rank() == rank && w.shape.rank() == rank,
         fmt::format("x must be [N, {0}, C] and weight [O, C, {1}]", rank == 4 ? "H, W" : "T, H, W",
                     rank == 4 ? "KH, KW" : "KT, KH, KW"));
  expect(std::ranges::all_of(axes, [](const Axis& v) { return v.stride >= 1 && v.before >= 0 && v.after >= 0; }),
         "pad must be sizes of at least 0 and stride at least 1");
  expect(groups >= 1 && w.shape[0] % groups == 0,
         fmt::format("groups must divide the {} outputs, is {}", w.shape[0], groups));
  expect(x.shape[rank - 1] == groups * w.shape[1], fmt::format("x has {} channels, the weight takes {} in {} group(s)",
                                                               x.shape[rank - 1], groups * w.shape[1], groups));
  Shape shape = x.shape.with(-1, w.shape[0]);
  for (int64_t i = 0; i + 2 < rank; ++i) {
    const Axis& axis = axes[static_cast<size_t>(i)];
    const int64_t room = x.shape[i + 1] + axis.before + axis.after - w.shape[i + 2];
    expect(room >= 0, "the kernel is larger than the padded image");
    shape = shape.with(i + 1, room / axis.stride + 1);
  }
  return {{x.dtype, std::move(shape)}};
}

std::vector<Desc> infer_planar(const Infer& a) {
  const std::vector<int64_t>& pad = a.attrs.list("pad");  // top left bottom right
  expect(pad.size() == 4, "pad must be four sizes: top left bottom right");
  const int64_t stride = a.attrs.i("stride");
  return infer(a, {{stride, pad[0], pad[2]}, {stride, pad[1], pad[3]}}, a.attrs.i("groups"));
}

std::vector<Desc> infer_spatial(const Infer& a) {
  const std::vector<int64_t>&stride = a.attrs.list("stride"), &pad = a.attrs.list("pad");
  expect(stride.size() == 3, "stride must be three sizes: time height width");
  expect(pad.size() == 6, "pad must be six sizes: front back top bottom left right");
  return infer(a, {{stride[0], pad[0], pad[1]}, {stride[1], pad[2], pad[3]}, {stride[2], pad[4], pad[5]}}, 1);
}

template <typename Params>
void set_geometry(Params& p, const Attrs& attrs) {
  const std::vector<int64_t>& pad = attrs.list("pad");
  if constexpr (requires { p.groups; }) {
    p.stride = static_cast<int32_t>(attrs.i("stride"));
    p.pad_top = static_cast<int32_t>(pad[0]);
    p.pad_left = static_cast<int32_t>(pad[1]);
    p.pad_bottom = static_cast<int32_t>(pad[2]);
    p.pad_right = static_cast<int32_t>(pad[3]);
    p.groups = static_cast<int32_t>(attrs.i("groups"));
  } else {
    std::ranges::copy(attrs.list("stride"), p.stride);
    std::ranges::copy(pad, p.pad);
  }
}

template <typename Params, lk_status (*kernel)(lk_context*, const Params*)>
lk_status launch(const Launch& l) {
  Params p{};
  p.x = l.in[0];
  p.weight = kernel_weight(l.in[1]);
  if (l.in.size() > 2) p.bias = l.in[2];
  p.y = l.out[0];
  set_geometry(p, l.attrs);
  return kernel(l.context, &p);
}

template <typename Params, lk_status (*kernel)(lk_context*, const Params*)>
lk_status launch_backward(const Launch& l) {
  Params p{};
  bind_backward(l, p);
  p.weight = kernel_weight(p.weight);
  p.dweight = kernel_weight(p.dweight);
  set_geometry(p, l.attrs);
  return kernel(l.context, &p);
}

}  // namespace

const OpDef conv2d_op{.name = "conv2d/1",
                      .infer = infer_planar,
                      .gradient = [](Gradient& g) { emit_needed(g, conv2d_backward_op, g.attrs()); },
                      .launch = launch<lk_conv2d_params, lk_conv2d>,
                      .channels_last_input = 1};
const OpDef conv2d_backward_op{.name = "conv2d_backward",
                               .infer = infer_needed,
                               .launch = launch_backward<lk_conv2d_backward_params, lk_conv2d_backward>};
const OpDef conv3d_op{.name = "conv3d/1",
                      .infer = infer_spatial,
                      .gradient = [](Gradient& g) { emit_needed(g, conv3d_backward_op, g.attrs()); },
                      .launch = launch<lk_conv3d_params, lk_conv3d>,
                      .channels_last_input = 1};
const OpDef conv3d_backward_op{.name = "conv3d_backward",
                               .infer = infer_needed,
                               .launch = launch_backward<lk_conv3d_backward_params, lk_conv3d_backward>};

}  // namespace lh
