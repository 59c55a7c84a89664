#include "ops/lora_gradients.h"

#include <array>

#include "lora_kernels_group.h"
#include "ops/lora_group.h"
#include "ops/ops.h"

namespace lh {
namespace {

using G = LoraGradients;

std::vector<Desc> infer(const Infer& a) {
  std::vector<Desc> out;
  for (size_t i = 0; i < G::layers(a.in.size()); ++i) {
    out.push_back(required(a, G::at(i, G::DOWN)));
    out.push_back(required(a, G::at(i, G::UP)));
  }
  return out;
}

lk_status launch(const Launch& l) {
  std::array<lk_lora_gradients_layer, LK_LORA_GRADIENTS_MAX> layers{};
  const size_t count = G::layers(l.in.size());
  for (size_t i = 0; i < count; ++i) {
    lk_lora_gradients_layer& p = layers.at(i);
    p.x = l.in[G::at(i, G::X)];
    p.dy = l.in[G::at(i, G::DY)];
    p.s = l.in[G::at(i, G::S)];
    p.ds = l.in[G::at(i, G::DS)];
    p.scale = static_cast<float>(l.attrs.f(lora_scale_attr(i)));
    p.ddown = l.out[2 * i];
    p.dup = l.out[2 * i + 1];
  }
  lk_lora_gradients_params p{};
  p.layers = layers.data();
  p.count = static_cast<int32_t>(count);
  return lk_lora_gradients(l.context, &p);
}

}  // namespace

std::pair<Value, Value> emit_lora_gradients(Gradient& g, std::vector<Value> inputs, double scale) {
  const std::vector<Value> d = g.emit_all(lora_gradients_op, std::move(inputs), {{lora_scale_attr(0), scale}});
  return {d[0], d[1]};
}

const OpDef lora_gradients_op{.name = "lora_gradients", .infer = infer, .launch = launch};

}  // namespace lh
