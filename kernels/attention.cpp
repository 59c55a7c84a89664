// lk_attention and its gradients: q, o [B, Sq, H, D], k and v [B, Sk, Hk, D], bias [1|B, 1|H, Sq, Sk], key_lengths [B],
// key_mask [B, Sk], lse [B, H, Sq].
#include "check.h"
#include "dispatch.h"

namespace {

template <class Params>
void check_inputs(const lk::Check& check, const Params& p) {
  check.floating(LK_LINES(p, q));
  check.rank(LK_LINES(p, q), 4, 4);
  check.floating(LK_LINES(p, k));
  check.rank(LK_LINES(p, k), 4, 4);
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], depth = p.q.dims[3];
  const int64_t keys = p.k.dims[1], key_heads = p.k.dims[2];
  check.require(
      heads % key_heads == 0, "k",
      [&] { return "a number of heads that divides the " + std::to_string(heads) + " of q"; }, key_heads);
  check.shape(LK_LINES(p, k), {batch, keys, key_heads, depth});
  check.floating(LK_LINES(p, v));
  check.shape(LK_LINES(p, v), {batch, keys, key_heads, depth});
  if (lk::present(p.bias)) {
    check.floating(LK_ARG(p, bias));
    check.rank(LK_ARG(p, bias), 4, 4);
    check.shape(LK_ARG(p, bias), {p.bias.dims[0] == 1 ? 1 : batch, p.bias.dims[1] == 1 ? 1 : heads, queries, keys});
  }
  if (lk::present(p.key_lengths)) {
    check.dtype(LK_ARG(p, key_lengths), LK_I32);
    check.shape(LK_ARG(p, key_lengths), {batch});
  }
  if (lk::present(p.key_mask)) {
    check.dtype(LK_ARG(p, key_mask), LK_I32);
    check.shape(LK_ARG(p, key_mask), {batch, keys});
  }
  check.finite("scale", p.scale);
  check.finite("soft_cap", p.soft_cap);
  check.require(p.soft_cap >= 0, "soft_cap", "0 (none) or a value above 0", p.soft_cap);
}

void check_attention(const lk_attention_params& p) {
  const lk::Check check("attention");
  check_inputs(check, p);
  check.floating(LK_LINES(p, o));
  check.shape(LK_LINES(p, o), lk::shape_of(p.q));
  if (lk::present(p.lse)) {
    check.dtype(LK_ARG(p, lse), LK_F32);
    check.shape(LK_ARG(p, lse), {p.q.dims[0], p.q.dims[2], p.q.dims[1]});
  }
  for (const lk::Arg& output : {LK_LINES(p, o), LK_ARG(p, lse)}) {
    check.separate(output, {LK_LINES(p, q), LK_LINES(p, k), LK_LINES(p, v), LK_ARG(p, bias), LK_ARG(p, key_lengths),
                            LK_ARG(p, key_mask)});
  }
  check.separate(LK_LINES(p, o), {LK_ARG(p, lse)});
}

void check_attention_backward(const lk_attention_backward_params& p) {
  const lk::Check check("attention_backward");
  check_inputs(check, p);
  check.floating(LK_LINES(p, d_o));
  check.shape(LK_LINES(p, d_o), lk::shape_of(p.q));
  check.floating(LK_LINES(p, o));
  check.shape(LK_LINES(p, o), lk::shape_of(p.q));
  check.dtype(LK_ARG(p, lse), LK_F32);
  check.shape(LK_ARG(p, lse), {p.q.dims[0], p.q.dims[2], p.q.dims[1]});
  check.floating(LK_LINES(p, dq));
  check.shape(LK_LINES(p, dq), lk::shape_of(p.q));
  check.floating(LK_LINES(p, dk));
  check.shape(LK_LINES(p, dk), lk::shape_of(p.k));
  check.floating(LK_LINES(p, dv));
  check.shape(LK_LINES(p, dv), lk::shape_of(p.k));
  for (const lk::Arg& output : {LK_LINES(p, dq), LK_LINES(p, dk), LK_LINES(p, dv)}) {
    check.separate(output, {LK_LINES(p, d_o), LK_LINES(p, q), LK_LINES(p, k), LK_LINES(p, v), LK_LINES(p, o),
                            LK_ARG(p, lse), LK_ARG(p, bias), LK_ARG(p, key_lengths), LK_ARG(p, key_mask)});
  }
  check.separate(LK_LINES(p, dq), {LK_LINES(p, dk), LK_LINES(p, dv)});
  check.separate(LK_LINES(p, dk), {LK_LINES(p, dv)});
}

}  // namespace

LK_DEFINE_OP(attention, lk_attention_params)
LK_DEFINE_OP(attention_backward, lk_attention_backward_params)
