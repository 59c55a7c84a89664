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
  Attrs attrs{{"stride", g.attrs().i("stride")}, {"pad", g.attrs().list("pad")}};
  attrs.set("dx", int64_t{g.needs(0)});
  attrs.set("dweight", int64_t{g.needs(1)});
  attrs.set("dbias", int64_t{g.needs(2)});
  const Value bias = g.input_count() > 2 ? g.in(2) : Value{};
  const std::vector<Value> d = g.emit_all(conv2d_backward_op, {g.dout(), g.in(0), g.in(1), bias}, attrs);
  size_t next = 0;
  for (size_t i = 0; i < 3; ++i)
    if (g.needs(i)) g.set(i, d[next++]);
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

std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  if (a.attrs.i("dx") != 0) out.push_back(required(a, 1));
  if (a.attrs.i("dweight") != 0) out.push_back(required(a, 2));
  if (a.attrs.i("dbias") != 0) out.push_back(required(a, 3));
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_conv2d_backward_params p{};
  p.dy = l.in[0];
  p.x = l.in[1];
  p.weight = kernel_weight(l.in[2]);
  size_t next = 0;
  if (l.attrs.i("dx") != 0) p.dx = l.out[next++];
  if (l.attrs.i("dweight") != 0) p.dweight = kernel_weight(l.out[next++]);
  if (l.attrs.i("dbias") != 0) p.dbias = l.out[next++];
  set_geometry(p, l.attrs);
  return lk_conv2d_backward(l.context, &p);
}

}  // namespace

const OpDef conv2d_op{
    .name = "conv2d/1", .infer = infer, .gradient = gradient, .launch = launch, .channels_last_input = 1};
const OpDef conv2d_backward_op{.name = "conv2d_backward", .infer = infer_backward, .launch = launch_backward};

}  // namespace lh
