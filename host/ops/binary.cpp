// Elementwise functions of two tensors with right-aligned broadcasting; the result has the type of the first.
#include <algorithm>

#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& args) {
  const Desc &a = required(args, 0), &b = required(args, 1);
  const int64_t rank = std::max(a.shape.rank(), b.shape.rank());
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t ia = i - (rank - a.shape.rank()), ib = i - (rank - b.shape.rank());
    const int64_t da = ia < 0 ? 1 : a.shape[ia], db = ib < 0 ? 1 : b.shape[ib];
    expect(da == db || da == 1 || db == 1, "shapes do not broadcast: " + a.shape.text() + " and " + b.shape.text());
    dims.push_back(da == 1 ? db : da);
  }
  return {{a.dtype, Shape(std::move(dims))}};
}

template <lk_binary_kind kind>
lk_status launch(const Launch& l) {
  lk_binary_params p{.kind = kind, .a = l.in[0], .b = l.in[1], .y = l.out[0]};
  return lk_binary(l.context, &p);
}

Value negate(Gradient& g, Value x) { return g.emit(affine_op, {x}, {{"scale", -1.0}, {"shift", 0.0}}); }

void add_gradient(Gradient& g) {
  if (g.needs(0)) g.set(0, reduce_to(g, g.dout(), g.in(0)));
  if (g.needs(1)) g.set(1, reduce_to(g, g.dout(), g.in(1)));
}

void sub_gradient(Gradient& g) {
  if (g.needs(0)) g.set(0, reduce_to(g, g.dout(), g.in(0)));
  if (g.needs(1)) g.set(1, negate(g, reduce_to(g, g.dout(), g.in(1))));
}

void mul_gradient(Gradient& g) {
  if (g.needs(0)) g.set(0, reduce_to(g, g.emit(mul_op, {g.dout(), g.in(1)}), g.in(0)));
  if (g.needs(1)) g.set(1, reduce_to(g, g.emit(mul_op, {g.dout(), g.in(0)}), g.in(1)));
}

void div_gradient(Gradient& g) {
  const Value over_b = g.emit(div_op, {g.dout(), g.in(1)});
  if (g.needs(0)) g.set(0, reduce_to(g, over_b, g.in(0)));
  if (g.needs(1)) g.set(1, negate(g, reduce_to(g, g.emit(mul_op, {over_b, g.out()}), g.in(1))));
}

// The gradient goes to the input that was chosen; to the first where both are equal.
void choose_gradient(Gradient& g, Value first_chosen) {
  const Value to_first = g.emit(mul_op, {g.dout(), first_chosen});
  if (g.needs(0)) g.set(0, reduce_to(g, to_first, g.in(0)));
  if (g.needs(1)) g.set(1, reduce_to(g, g.emit(sub_op, {g.dout(), to_first}), g.in(1)));
}

void max_gradient(Gradient& g) { choose_gradient(g, g.emit(greater_equal_op, {g.in(0), g.in(1)})); }
void min_gradient(Gradient& g) { choose_gradient(g, g.emit(greater_equal_op, {g.in(1), g.in(0)})); }

}  // namespace

const OpDef add_op{
    .name = "add/1", .infer = infer, .gradient = add_gradient, .launch = launch<LK_ADD>, .elementwise = true};
const OpDef sub_op{
    .name = "sub/1", .infer = infer, .gradient = sub_gradient, .launch = launch<LK_SUB>, .elementwise = true};
const OpDef mul_op{
    .name = "mul/1", .infer = infer, .gradient = mul_gradient, .launch = launch<LK_MUL>, .elementwise = true};
const OpDef div_op{
    .name = "div/1", .infer = infer, .gradient = div_gradient, .launch = launch<LK_DIV>, .elementwise = true};
const OpDef max_op{
    .name = "max/1", .infer = infer, .gradient = max_gradient, .launch = launch<LK_MAX>, .elementwise = true};
const OpDef min_op{
    .name = "min/1", .infer = infer, .gradient = min_gradient, .launch = launch<LK_MIN>, .elementwise = true};
const OpDef greater_equal_op{
    .name = "greater_equal", .infer = infer, .launch = launch<LK_GREATER_EQUAL>, .elementwise = true};

}  // namespace lh
