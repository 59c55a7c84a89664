// lk_lora_group_forward, lk_lora_group_backward: every layer as lora.cpp checks it, all of one x, and no output of one
// where another reads or writes.
#include <string>
#include <vector>

#include "dispatch.h"
#include "gated_activation.h"
#include "layers.h"
#include "lora.h"

namespace {

void check_same_x(const lk::Check& check, const lk_tensor& x, const lk_tensor& first) {
  check.require(x.data == first.data, "x", "the x of layer 0", "another");
  check.dtype({"x", &x}, first.dtype);
  check.shape({"x", &x}, lk::shape_of(first));
}

std::vector<lk::Arg> read_by(const lk_lora_forward_params& p) {
  return {LK_ARG(p, x),    LK_ARG(p, weight), LK_ARG(p, weight_scale), LK_ARG(p, bias),
          LK_ARG(p, down), LK_ARG(p, up),     LK_ARG(p, mask)};
}
std::vector<lk::Arg> read_by(const lk_lora_backward_params& p) {
  return {LK_ARG(p, dy),           LK_ARG(p, x),    LK_ARG(p, s),  LK_ARG(p, weight),
          LK_ARG(p, weight_scale), LK_ARG(p, down), LK_ARG(p, up), LK_ARG(p, mask)};
}
std::vector<lk::Arg> written_by(const lk_lora_forward_params& p) { return {LK_ARG(p, y), LK_ARG(p, s)}; }
std::vector<lk::Arg> written_by(const lk_lora_backward_params& p) {
  return {LK_ARG(p, ddown), LK_ARG(p, dup), LK_ARG(p, ds)};
}

// Of two layers whose y differ in nothing but their numbers.
void check_gating(const lk::Check& check, const lk_lora_group_forward_params& p) {
  check.require(p.count == 2, "count", "2 where one layer gates the other", p.count);
  lk::check_gate(check, "activation", p.activation);
  const lk_tensor& y = p.layers[0].y;
  check.dtype({"layer 1: y", &p.layers[1].y}, y.dtype);
  check.shape({"layer 1: y", &p.layers[1].y}, lk::shape_of(y));
  const lk::Arg activated = LK_LINES(p, activated);
  check.floating(activated);
  check.shape(activated, lk::shape_of(y));
  for (int32_t i = 0; i < p.count; ++i) {
    lk::separate(check, activated, read_by(p.layers[i]));
    lk::separate(check, activated, written_by(p.layers[i]));
  }
}

void check_lora_group_forward(const lk_lora_group_forward_params& p) {
  constexpr const char* op = "lora_group_forward";
  lk::check_layers(lk::Check(op), p.layers, p.count, LK_LORA_GROUP_MAX);
  for (int32_t i = 0; i < p.count; ++i) {
    const std::string name = lk::layer_name(op, i);
    const lk::Check check(name.c_str());
    check.require(!lk::present(p.layers[i].activated), "activated", "none in a group", "a tensor");
    check.require(!lk::present(p.layers[i].added), "added", "none in a group", "a tensor");
    lk::check_lora_forward(check, p.layers[i]);
    check_same_x(check, p.layers[i].x, p.layers[0].x);
  }
  lk::check_layers_apart(op, p.layers, p.count, read_by, written_by);
  if (lk::present(p.activated)) check_gating(lk::Check(op), p);
}

void check_lora_group_backward(const lk_lora_group_backward_params& p) {
  constexpr const char* op = "lora_group_backward";
  const lk::Check group(op);
  lk::check_layers(group, p.layers, p.count, LK_LORA_GROUP_MAX);
  for (int32_t i = 0; i < p.count; ++i) {
    const std::string name = lk::layer_name(op, i);
    const lk::Check check(name.c_str());
    lk::check_lora_backward(check, p.layers[i]);
    check_same_x(check, p.layers[i].x, p.layers[0].x);
    check.require(!lk::present(p.layers[i].dx), "dx", "none: it is the group's", "one");
  }
  lk::check_layers_apart(op, p.layers, p.count, read_by, written_by);
  group.optional(LK_ARG(p, dx), lk::shape_of(p.layers[0].x));
  group.require(!lk::present(p.added) || lk::present(p.dx), "added", "dx beside it", "no dx");
  if (lk::present(p.added)) {
    group.dtype(LK_ARG(p, added), p.dx.dtype);
    group.shape(LK_ARG(p, added), lk::shape_of(p.layers[0].x));
  }
  group.separate(LK_ARG(p, dx), {LK_ARG(p, added)});
  for (int32_t i = 0; i < p.count; ++i) {
    lk::separate(group, LK_ARG(p, dx), read_by(p.layers[i]));
    lk::separate(group, LK_ARG(p, dx), written_by(p.layers[i]));
    for (const lk::Arg& output : written_by(p.layers[i])) group.separate(output, {LK_ARG(p, added)});
  }
}

}  // namespace

LK_DEFINE_OP(lora_group_forward, lk_lora_group_forward_params)
LK_DEFINE_OP(lora_group_backward, lk_lora_group_backward_params)
