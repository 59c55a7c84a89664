// What follows on layers with adapters: an activation of what one stores, or of what gates.
#pragma once

#include <span>

#include "lines.h"
#include "lora_kernels_group.h"

namespace lk {

struct Activated {
  lk_tensor to;  // perhaps none
  lk_unary_kind kind;
  int64_t from;
  bool gates;  // columns of one layer as many behind them, or one layer the other

  bool wanted() const { return to.data != nullptr; }
  int64_t width() const { return to.dims[to.rank - 1]; }
};

inline Activated activated_of(const lk_lora_forward_params& p) {
  return {p.activated, p.activation, p.activated_from, p.gates != 0};
}

inline Activated activated_of(const lk_lora_group_forward_params& p) { return {p.activated, p.activation, 0, true}; }

// As a pass over what was stored.
template <class Backend>
void activate(Backend& backend, std::span<const lk_lora_forward_params> layers, const Activated& a) {
  const lk_tensor &y = layers.front().y, first = columns_of(y, a.from, a.width());
  if (!a.gates) return unary(backend, {.kind = a.kind, .x = first, .y = a.to});
  const lk_tensor second = layers.size() > 1 ? layers[1].y : columns_of(y, a.from + a.width(), a.width());
  gated_activation(backend, {.kind = a.kind, .a = first, .b = second, .y = a.to});
}

}  // namespace lk
