// lora: a linear layer with an adapter. s = (x down^T) * mask ; y = x weight^T + bias + scale s up^T. Outputs y, s.
// weight_scale multiplies a weight that is kept in fewer bits, as in linear. Beside it are the forms with an
// activation behind it, and with a tensor that y is added to.
// lora_backward: ds = scale (dy up) * mask, of dy's type, and where the attribute says so dx = dy weight + ds down +
// added; the adapter's gradients are lora_gradients.
#include "ops/lora_activated.h"
#include "ops/lora_added.h"
#include "ops/lora_gradients.h"
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { X, WEIGHT, BIAS, DOWN, UP, MASK, WEIGHT_SCALE, ADDED };

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, X), &down = required(a, DOWN), &up = required(a, UP);
  return {{x.dtype, x.shape.with(-1, up.shape[0])}, {x.dtype, x.shape.with(-1, down.shape[0])}};
}

void gradient(Gradient& g) {
  Attrs attrs{{"scale", g.attrs().f("scale")}, {"dx", int64_t{g.needs(X)}}};
  take_products(g.attrs(), attrs);
  const std::vector<Value> d = g.emit_all(
      lora_backward_op,
      {g.dout(), g.in(X), g.in(WEIGHT), g.in(DOWN), g.in(UP), g.in(MASK), g.in(WEIGHT_SCALE), g.take_sum(X)}, attrs);
  const auto [ddown, dup] =
      emit_lora_gradients(g, {g.in(X), g.dout(), g.out(1), d[0], g.in(DOWN), g.in(UP)}, g.attrs().f("scale"));
  g.set(DOWN, ddown);
  g.set(UP, dup);
  if (g.needs(X)) g.set(X, d[1]);
}

void gradient_added(Gradient& g) {
  gradient(g);
  if (g.needs(ADDED)) g.set(ADDED, g.dout());
}

std::vector<Desc> infer_activated(const Infer& a) {
  std::vector<Desc> out = infer(a);
  const int64_t from = a.attrs.i("from"), columns = out[0].shape[out[0].shape.rank() - 1];
  expect(from >= 0 && from < columns, fmt::format("from is {}, outside {} columns", from, columns));
  const int64_t gates = a.attrs.i("gates"), active = columns - from;
  expect(gates == 0 || active % 2 == 0, fmt::format("{} columns have no half that gates the other", active));
  out.push_back({out[0].dtype, out[0].shape.with(-1, gates != 0 ? active / 2 : active)});
  return out;
}

std::vector<Desc> infer_added(const Infer& a) {
  std::vector<Desc> out = infer(a);
  const Desc& added = required(a, ADDED);
  expect(added == out[0], fmt::format("expected to add {}, found {}", out[0].text(), added.text()));
  return out;
}

lk_lora_forward_params forward_params(const Launch& l) {
  lk_lora_forward_params p{};
  p.x = l.in[X];
  p.weight = l.in[WEIGHT];
  p.bias = l.in[BIAS];
  p.down = l.in[DOWN];
  p.up = l.in[UP];
  p.mask = l.in[MASK];
  p.weight_scale = l.in[WEIGHT_SCALE];
  p.scale = static_cast<float>(l.attrs.f("scale"));
  p.y = l.out[0];
  p.s = l.out[1];
  p.products = products_of(l.attrs);
  return p;
}

lk_status launch(const Launch& l) {
  const lk_lora_forward_params p = forward_params(l);
  return lk_lora_forward(l.context, &p);
}

lk_status launch_activated(const Launch& l) {
  lk_lora_forward_params p = forward_params(l);
  p.activated = l.out[2];
  p.gates = l.attrs.i("gates") != 0 ? 1 : 0;
  p.activation = p.gates != 0 ? LK_SILU : LK_GELU_TANH;
  p.activated_from = l.attrs.i("from");
  return lk_lora_forward(l.context, &p);
}

lk_status launch_added(const Launch& l) {
  lk_lora_forward_params p = forward_params(l);
  p.added = l.in[ADDED];
  return lk_lora_forward(l.context, &p);
}

std::vector<Desc> infer_backward(const Infer& a) {
  const Desc &dy = required(a, 0), &x = required(a, 1), &down = required(a, 3);
  std::vector<Desc> out{{dy.dtype, dy.shape.with(-1, down.shape[0])}};
  if (a.attrs.i("dx") != 0) out.push_back(x);
  return out;
}

lk_status launch_backward(const Launch& l) {
  lk_lora_backward_params p{};
  p.dy = l.in[0];
  p.x = l.in[1];
  p.weight = l.in[2];
  p.down = l.in[3];
  p.up = l.in[4];
  p.mask = l.in[5];
  p.weight_scale = l.in[6];
  p.scale = static_cast<float>(l.attrs.f("scale"));
  p.ds = l.out[0];
  if (l.attrs.i("dx") != 0) p.dx = l.out[1];
  p.added = l.in[7];
  p.products = products_of(l.attrs);
  return lk_lora_backward(l.context, &p);
}

}  // namespace

const OpDef lora_op{.name = "lora", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef lora_backward_op{.name = "lora_backward", .infer = infer_backward, .launch = launch_backward};

const OpDef lora_activated_op{
    .name = "lora_activated", .infer = infer_activated, .launch = launch_activated, .lines_out = {2}};

const OpDef lora_added_op{
    .name = "lora_added", .infer = infer_added, .gradient = gradient_added, .launch = launch_added};

}  // namespace lh
