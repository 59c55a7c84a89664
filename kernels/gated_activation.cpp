// lk_gated_activation and its gradients, element by element.
#include "gated_activation.h"

#include "dispatch.h"

void lk::check_gate(const Check& check, const char* name, lk_unary_kind kind) {
  check.require(kind == LK_SILU || kind == LK_GELU_ERF || kind == LK_GELU_TANH, name,
                "LK_SILU, LK_GELU_ERF or LK_GELU_TANH (0 to 2)", kind);
}

namespace {

// Those of a layer's output, and the sigmoid, which gates what no layer makes.
void check_kind(const lk::Check& check, lk_unary_kind kind) {
  check.require(kind == LK_SILU || kind == LK_GELU_ERF || kind == LK_GELU_TANH || kind == LK_SIGMOID, "kind",
                "LK_SILU, LK_GELU_ERF, LK_GELU_TANH or LK_SIGMOID (0 to 2, 4)", kind);
}

void check_gated_activation(const lk_gated_activation_params& p) {
  const lk::Check check("gated_activation");
  check_kind(check, p.kind);
  check.floating(LK_LINES(p, a));
  check.floating(LK_LINES(p, b));
  check.shape(LK_LINES(p, b), lk::shape_of(p.a));
  check.floating(LK_LINES(p, y));
  check.shape(LK_LINES(p, y), lk::shape_of(p.a));
  check.separate(LK_LINES(p, y), {LK_LINES(p, a), LK_LINES(p, b)});
}

void check_gated_activation_backward(const lk_gated_activation_backward_params& p) {
  const lk::Check check("gated_activation_backward");
  check_kind(check, p.kind);
  check.floating(LK_LINES(p, dy));
  check.floating(LK_LINES(p, a));
  check.shape(LK_LINES(p, a), lk::shape_of(p.dy));
  if (lk::present(p.da)) check.tensor(LK_LINES(p, b));
  check.optional(LK_LINES(p, b), lk::shape_of(p.dy));
  check.optional(LK_LINES(p, da), lk::shape_of(p.dy));
  check.optional(LK_LINES(p, db), lk::shape_of(p.dy));
  for (const lk::Arg& output : {LK_LINES(p, da), LK_LINES(p, db)}) {
    check.separate(output, {LK_LINES(p, dy), LK_LINES(p, a), LK_LINES(p, b)});
  }
  check.separate(LK_LINES(p, da), {LK_LINES(p, db)});
}

}  // namespace

LK_DEFINE_OP(gated_activation, lk_gated_activation_params)
LK_DEFINE_OP(gated_activation_backward, lk_gated_activation_backward_params)
