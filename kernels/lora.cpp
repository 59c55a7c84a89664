// lk_lora_forward, lk_lora_backward: x [..., in], down [r, in], up [out, r], s and mask [..., r], y [..., out].
#include "lora.h"

#include "dispatch.h"
#include "gated_activation.h"

namespace {

// The adapter and the frozen weight, which both directions have.
template <class Params>
void check_adapter(const lk::Check& check, const Params& p) {
  check.floating(LK_ARG(p, x));
  check.rank(LK_ARG(p, x), 1, LK_MAX_RANK);
  const int64_t in = p.x.dims[p.x.rank - 1];
  check.floating(LK_ARG(p, down));
  check.rank(LK_ARG(p, down), 2, 2);
  const int64_t r = p.down.dims[0];
  check.shape(LK_ARG(p, down), {r, in});
  check.floating(LK_ARG(p, up));
  check.rank(LK_ARG(p, up), 2, 2);
  const int64_t out = p.up.dims[0];
  check.shape(LK_ARG(p, up), {out, r});
  if (lk::present(p.weight)) {
    check.weight(LK_ARG(p, weight), LK_ARG(p, weight_scale));
    check.shape(LK_ARG(p, weight), {out, in});
    check.products(p.products, LK_ARG(p, weight));
  }
  check.optional(LK_ARG(p, mask), lk::with_last(p.x, r));
  check.finite("scale", p.scale);
}

// What an activation adds to a layer: a tensor of the columns it takes, or half as many.
void check_activated(const lk::Check& check, const lk_lora_forward_params& p, const lk::Arg& activated) {
  const int64_t columns = p.up.dims[0];
  check.require(p.gates == 0 || p.gates == 1, "gates", "0 or 1", p.gates);
  if (p.gates != 0)
    lk::check_gate(check, "activation", p.activation);
  else
    check.require(p.activation == LK_GELU_ERF || p.activation == LK_GELU_TANH, "activation",
                  "LK_GELU_ERF or LK_GELU_TANH (1 or 2)", p.activation);
  check.require(
      p.activated_from >= 0 && p.activated_from < columns, "activated_from",
      [&] { return "0 to " + std::to_string(columns - 1); }, p.activated_from);
  const int64_t active = columns - p.activated_from;
  check.require(p.gates == 0 || active % 2 == 0, "activated_from",
                "an even number of columns behind it, of which half gate", active);
  check.floating(activated);
  check.shape(activated, lk::with_last(p.x, p.gates != 0 ? active / 2 : active));
}

}  // namespace

void lk::check_lora_forward(const Check& check, const lk_lora_forward_params& p) {
  check_adapter(check, p);
  const int64_t out = p.up.dims[0], r = p.down.dims[0];
  if (lk::present(p.bias)) {
    check.require(lk::present(p.weight), "bias", "a weight beside it", "weight absent");
    check.floating(LK_ARG(p, bias));
    check.shape(LK_ARG(p, bias), {out});
  }
  check.floating(LK_ARG(p, y));
  check.shape(LK_ARG(p, y), lk::with_last(p.x, out));
  check.floating(LK_ARG(p, s));
  check.shape(LK_ARG(p, s), lk::with_last(p.x, r));
  const lk::Arg activated = LK_LINES(p, activated);
  if (lk::present(p.activated)) check_activated(check, p, activated);
  if (lk::present(p.added)) {
    check.require(!lk::present(p.activated), "added", "none beside an activation", "a tensor");
    check.dtype(LK_ARG(p, added), p.y.dtype);
    check.shape(LK_ARG(p, added), lk::with_last(p.x, out));
  }
  for (const lk::Arg& output : {LK_ARG(p, y), LK_ARG(p, s), activated}) {
    check.separate(output, {LK_ARG(p, x), LK_ARG(p, weight), LK_ARG(p, weight_scale), LK_ARG(p, bias), LK_ARG(p, down),
                            LK_ARG(p, up), LK_ARG(p, mask), LK_ARG(p, added)});
  }
  check.separate(LK_ARG(p, y), {LK_ARG(p, s)});
  check.separate(activated, {LK_ARG(p, y), LK_ARG(p, s)});
}

void lk::check_lora_backward(const Check& check, const lk_lora_backward_params& p) {
  check_adapter(check, p);
  const int64_t out = p.up.dims[0], r = p.down.dims[0], in = p.down.dims[1];
  check.floating(LK_ARG(p, dy));
  check.shape(LK_ARG(p, dy), lk::with_last(p.x, out));
  check.optional(LK_ARG(p, s), lk::with_last(p.x, r));
  check.optional(LK_ARG(p, dx), lk::shape_of(p.x));
  check.optional(LK_ARG(p, ddown), {r, in});
  check.optional(LK_ARG(p, dup), {out, r});
  check.require(!lk::present(p.added) || lk::present(p.dx), "added", "dx beside it", "no dx");
  if (lk::present(p.added)) {
    check.dtype(LK_ARG(p, added), p.dx.dtype);
    check.shape(LK_ARG(p, added), lk::shape_of(p.x));
  }
  check.optional(LK_ARG(p, ds), lk::with_last(p.x, r));
  if (lk::present(p.ds)) check.dtype(LK_ARG(p, ds), p.dy.dtype);
  for (const lk::Arg& output : {LK_ARG(p, dx), LK_ARG(p, ddown), LK_ARG(p, dup), LK_ARG(p, ds)}) {
    check.separate(output, {LK_ARG(p, dy), LK_ARG(p, x), LK_ARG(p, s), LK_ARG(p, weight), LK_ARG(p, weight_scale),
                            LK_ARG(p, down), LK_ARG(p, up), LK_ARG(p, mask), LK_ARG(p, added)});
  }
  check.separate(LK_ARG(p, dx), {LK_ARG(p, ddown), LK_ARG(p, dup), LK_ARG(p, ds)});
  check.separate(LK_ARG(p, ddown), {LK_ARG(p, dup), LK_ARG(p, ds)});
  check.separate(LK_ARG(p, dup), {LK_ARG(p, ds)});
}

namespace {

void check_lora_forward(const lk_lora_forward_params& p) { lk::check_lora_forward(lk::Check("lora_forward"), p); }
void check_lora_backward(const lk_lora_backward_params& p) { lk::check_lora_backward(lk::Check("lora_backward"), p); }

}  // namespace

LK_DEFINE_OP(lora_forward, lk_lora_forward_params)
LK_DEFINE_OP(lora_backward, lk_lora_backward_params)
