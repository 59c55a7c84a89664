// conv2d: x [N, H, W, C], weight [O, C, KH, KW] (kept in memory as [O, KH, KW, C]) -> [N, OH, OW, O]; zero padding.
#include <algorithm>

#include "ops/ops.h"

namespace lh {
namespace {

// The kernels' view of a weight whose logical dims are [O, C, KH, KW].
lk_tensor kernel_weight(lk_tensor weight) {
  const int64_t dims[4] = {weight.dims[0], weight.dims[2], weight.dims[3], weight.dims[1]};
  std::copy(dims, dims + 4, weight.dims);
  return weight;
}

template <typename Params>
void set_geometry(Params& p, const Attrs& attrs) {
  const std::vector<int64_t>& pad = attrs.list("pad");
  p.stride = static_cast<int32_t>(attrs.i("stride"));
  p.pad_top = static_cast<int32_t>(pad[0]);
  p.pad_left = static_cast<int32_t>(pad[1]);
  p.pad_bottom = static_cast<int32_t>(pad[2]);
  p.pad_right = static_cast<int32_t>(pad[3]);
}

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &w = required(a, 1);
  const std::vector<int64_t>& pad = a.attrs.list("pad");
  const int64_t stride = a.attrs.i("stride");
  expect(x.shape.rank() == 4 && w.shape.rank() == 4, "x must be [N, H, W, C] and weight [O, C, KH, KW]");
  expect(pad.size() == 4 && stride >= 1 && std::ranges::all_of(pad, [](int64_t v) { return v >= 0; }),
         "pad must be four sizes (top left bottom right) and stride at least 1");
  expect(x.shape[3] == w.shape[1], fmt::format("x has {} channels, the weight takes {}", x.shape[3], w.shape[1]));
  const int64_t h = x.shape[1] + pad[0] + pad[2] - w.shape[2], width = x.shape[2] + pad[1] + pad[3] - w.shape[3];
  expect(h >= 0 && width >= 0, "the kernel is larger than the padded image");
  return {{x.dtype, {x.shape[0], h / stride + 1, width / stride + 1, w.shape[0]}}};
}

void gradient(Gradient& g) {
  emit_needed(g, conv2d_backward_op, {{"stride", g.attrs().i("stride")}, {"pad", g.attrs().list("pad")}});
}

lk_status launch(const Launch& l) {
  lk_conv2d_params p{};
  p.x = l.in[0];
  p.weight = kernel_weight(l.in[1]);
  if (l.in.size() > 2) p.bias = l.in[2];
  p.y = l.out[0];
  set_geometry(p, l.attrs);
  return lk_conv2d(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_conv2d_backward_params p{};
  bind_backward(l, p);
  p.weight = kernel_weight(p.weight);
  p.dweight = kernel_weight(p.dweight);
  set_geometry(p, l.attrs);
  return lk_conv2d_backward(l.context, &p);
}

}  // namespace

const OpDef conv2d_op{
    .name = "conv2d/1", .infer = infer, .gradient = gradient, .launch = launch, .channels_last_input = 1};
const OpDef conv2d_backward_op{.name = "conv2d_backward", .infer = infer_needed, .launch = launch_backward};

}  // namespace lh
