// Elementwise functions of two tensors with right-aligned broadcasting; the result has the type of the first, that of a
// comparison is int32. Both operands are floating, or both are int32.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& args) {
  const Desc &a = required(args, 0), &b = required(args, 1);
  expect(is_float(a.dtype) ? is_float(b.dtype) : a.dtype == DType::i32 && b.dtype == DType::i32,
         "a and b must both be floating or both int32, are " + a.text() + " and " + b.text() + "; cast one of them");
  return {{a.dtype, broadcast({&a, &b})}};
}

std::vector<Desc> infer_quotient(const Infer& args) {
  expect(is_float(required(args, 0).dtype), "int32 cannot be divided; cast it to a floating type first");
  return infer(args);
}

std::vector<Desc> infer_comparison(const Infer& args) { return {{DType::i32, infer(args)[0].shape}}; }

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
  const Value zero = g.zero();
  if (g.needs(0)) g.set(0, reduce_to(g, g.emit(where_op, {first_chosen, g.dout(), zero}), g.in(0)));
  if (g.needs(1)) g.set(1, reduce_to(g, g.emit(where_op, {first_chosen, zero, g.dout()}), g.in(1)));
}

void max_gradient(Gradient& g) { choose_gradient(g, g.emit(greater_equal_op, {g.in(0), g.in(1)})); }
void min_gradient(Gradient& g) { choose_gradient(g, g.emit(less_equal_op, {g.in(0), g.in(1)})); }

template <lk_binary_kind kind>
constexpr OpDef comparison(const char* name) {
  return {.name = name, .infer = infer_comparison, .launch = launch<kind>, .elementwise = true};
}

}  // namespace

const OpDef add_op{
    .name = "add/1", .infer = infer, .gradient = add_gradient, .launch = launch<LK_ADD>, .elementwise = true};
const OpDef sub_op{
    .name = "sub/1", .infer = infer, .gradient = sub_gradient, .launch = launch<LK_SUB>, .elementwise = true};
const OpDef mul_op{
    .name = "mul/1", .infer = infer, .gradient = mul_gradient, .launch = launch<LK_MUL>, .elementwise = true};
const OpDef div_op{
    .name = "div/1", .infer = infer_quotient, .gradient = div_gradient, .launch = launch<LK_DIV>, .elementwise = true};
const OpDef max_op{
    .name = "max/1", .infer = infer, .gradient = max_gradient, .launch = launch<LK_MAX>, .elementwise = true};
const OpDef min_op{
    .name = "min/1", .infer = infer, .gradient = min_gradient, .launch = launch<LK_MIN>, .elementwise = true};
const OpDef equal_op = comparison<LK_EQUAL>("equal/1");
const OpDef less_op = comparison<LK_LESS>("less/1");
const OpDef less_equal_op = comparison<LK_LESS_EQUAL>("less_equal/1");
const OpDef greater_op = comparison<LK_GREATER>("greater/1");
const OpDef greater_equal_op = comparison<LK_GREATER_EQUAL>("greater_equal/1");

}  // namespace lh
