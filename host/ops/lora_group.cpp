#include "ops/lora_group.h"

#include <array>

#include "lora_kernels_group.h"
#include "ops/lora_activated.h"
#include "ops/lora_gradients.h"
#include "ops/ops.h"

namespace lh {
namespace {

using G = LoraGroup;

constexpr size_t x_input = 0, added_input = 1;

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, x_input);
  std::vector<Desc> out;
  for (size_t i = 0; i < G::layers(a.in.size()); ++i) {
    const Desc &down = required(a, G::at(i, G::DOWN)), &up = required(a, G::at(i, G::UP));
    out.push_back({x.dtype, x.shape.with(-1, up.shape[0])});
    out.push_back({x.dtype, x.shape.with(-1, down.shape[0])});
  }
  return out;
}

// A layer into whose y nothing flows has no part in it.
void gradient(Gradient& g) {
  Attrs attrs{{"dx", int64_t{g.needs(x_input)}}};
  take_products(g.attrs(), attrs);
  std::vector<Value> inputs{g.in(x_input), g.take_sum(x_input)};
  std::vector<size_t> flowing;
  for (size_t i = 0; i < G::layers(g.input_count()); ++i) {
    if (!g.dout(2 * i)) continue;
    attrs.set(lora_scale_attr(flowing.size()), g.attrs().f(lora_scale_attr(i)));
    inputs.insert(inputs.end(), {g.dout(2 * i), g.in(G::at(i, G::WEIGHT)), g.in(G::at(i, G::DOWN)),
                                 g.in(G::at(i, G::UP)), g.in(G::at(i, G::MASK)), g.in(G::at(i, G::WEIGHT_SCALE))});
    flowing.push_back(i);
  }
  const std::vector<Value> d = g.emit_all(lora_group_backward_op, std::move(inputs), std::move(attrs));
  for (size_t k = 0; k < flowing.size(); ++k) {
    const size_t i = flowing[k];
    const auto [ddown, dup] = emit_lora_gradients(
        g, {g.in(x_input), g.dout(2 * i), g.out(2 * i + 1), d[k], g.in(G::at(i, G::DOWN)), g.in(G::at(i, G::UP))},
        g.attrs().f(lora_scale_attr(i)));
    g.set(G::at(i, G::DOWN), ddown);
    g.set(G::at(i, G::UP), dup);
  }
  if (g.needs(x_input)) g.set(x_input, d.back());
}

std::vector<Desc> infer_gated(const Infer& a) {
  std::vector<Desc> out = infer(a);
  expect(out.size() == 4 && out[0] == out[2], "expected two layers of one width");
  out.push_back(out[0]);
  return out;
}

lk_status launch(const Launch& l) {
  std::array<lk_lora_forward_params, LK_LORA_GROUP_MAX> layers{};
  const size_t count = G::layers(l.in.size());
  for (size_t i = 0; i < count; ++i) {
    lk_lora_forward_params& p = layers.at(i);
    p.x = l.in[x_input];
    p.weight = l.in[G::at(i, G::WEIGHT)];
    p.bias = l.in[G::at(i, G::BIAS)];
    p.down = l.in[G::at(i, G::DOWN)];
    p.up = l.in[G::at(i, G::UP)];
    p.mask = l.in[G::at(i, G::MASK)];
    p.weight_scale = l.in[G::at(i, G::WEIGHT_SCALE)];
    p.scale = static_cast<float>(l.attrs.f(lora_scale_attr(i)));
    p.y = l.out[2 * i];
    p.s = l.out[2 * i + 1];
    p.products = products_of(l.attrs);
  }
  lk_lora_group_forward_params p{};
  p.layers = layers.data();
  p.count = static_cast<int32_t>(count);
  if (l.out.size() > 2 * count) {
    p.activated = l.out[2 * count];
    p.activation = LK_SILU;
  }
  return lk_lora_group_forward(l.context, &p);
}

std::vector<Desc> infer_backward(const Infer& a) {
  std::vector<Desc> out;
  for (size_t i = 0; i < G::backward_layers(a.in.size()); ++i) {
    const Desc& dy = required(a, G::at(i, G::DY));
    out.push_back({dy.dtype, dy.shape.with(-1, required(a, G::at(i, G::B_DOWN)).shape[0])});
  }
  if (a.attrs.i("dx") != 0) out.push_back(required(a, x_input));
  return out;
}

lk_status launch_backward(const Launch& l) {
  std::array<lk_lora_backward_params, LK_LORA_GROUP_MAX> layers{};
  const size_t count = G::backward_layers(l.in.size());
  for (size_t i = 0; i < count; ++i) {
    lk_lora_backward_params& p = layers.at(i);
    p.dy = l.in[G::at(i, G::DY)];
    p.x = l.in[x_input];
    p.weight = l.in[G::at(i, G::B_WEIGHT)];
    p.down = l.in[G::at(i, G::B_DOWN)];
    p.up = l.in[G::at(i, G::B_UP)];
    p.mask = l.in[G::at(i, G::B_MASK)];
    p.weight_scale = l.in[G::at(i, G::B_WEIGHT_SCALE)];
    p.scale = static_cast<float>(l.attrs.f(lora_scale_attr(i)));
    p.ds = l.out[i];
    p.products = products_of(l.attrs);
  }
  lk_lora_group_backward_params p{};
  p.layers = layers.data();
  p.count = static_cast<int32_t>(count);
  if (l.attrs.i("dx") != 0) p.dx = l.out[count];
  p.added = l.in[added_input];
  return lk_lora_group_backward(l.context, &p);
}

}  // namespace

std::string lora_scale_attr(size_t layer) { return fmt::format("scale.{}", layer); }

const OpDef lora_group_op{.name = "lora_group", .infer = infer, .gradient = gradient, .launch = launch};
const OpDef lora_group_gated_op{.name = "lora_group_gated", .infer = infer_gated, .launch = launch, .lines_out = {4}};
const OpDef lora_group_backward_op{.name = "lora_group_backward", .infer = infer_backward, .launch = launch_backward};

}  // namespace lh
