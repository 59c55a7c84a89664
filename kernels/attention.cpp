// lk_attention and its gradients: q, o [B, Sq, H, D], k and v [B, Sk, H, D], bias [1|B, 1|H, Sq, Sk], lse [B, H, Sq].
#include "check.h"
#include "dispatch.h"

namespace {

template <class Params>
void check_inputs(const lk::Check& check, const Params& p) {
  check.floating(LK_ARG(p, q));
  check.rank(LK_ARG(p, q), 4, 4);
  check.floating(LK_ARG(p, k));
  check.rank(LK_ARG(p, k), 4, 4);
  const int64_t batch = p.q.dims[0], queries = p.q.dims[1], heads = p.q.dims[2], depth = p.q.dims[3];
  const int64_t keys = p.k.dims[1];
  check.shape(LK_ARG(p, k), {batch, keys, heads, depth});
  check.floating(LK_ARG(p, v));
  check.shape(LK_ARG(p, v), {batch, keys, heads, depth});
  if (lk::present(p.bias)) {
    check.floating(LK_ARG(p, bias));
    check.rank(LK_ARG(p, bias), 4, 4);
    check.shape(LK_ARG(p, bias), {p.bias.dims[0] == 1 ? 1 : batch, p.bias.dims[1] == 1 ? 1 : heads, queries, keys});
  }
  if (lk::present(p.key_lengths)) {
    check.dtype(LK_ARG(p, key_lengths), LK_I32);
    check.shape(LK_ARG(p, key_lengths), {batch});
  }
  check.finite("scale", p.scale);
}

void check_attention(const lk_attention_params& p) {
  const lk::Check check("attention");
  check_inputs(check, p);
  check.floating(LK_ARG(p, o));
  check.shape(LK_ARG(p, o), lk::shape_of(p.q));
  if (lk::present(p.lse)) {
    check.dtype(LK_ARG(p, lse), LK_F32);
    check.shape(LK_ARG(p, lse), {p.q.dims[0], p.q.dims[2], p.q.dims[1]});
  }
  for (const lk::Arg& output : {LK_ARG(p, o), LK_ARG(p, lse)}) {
    check.separate(output, {LK_ARG(p, q), LK_ARG(p, k), LK_ARG(p, v), LK_ARG(p, bias), LK_ARG(p, key_lengths)});
  }
  check.separate(LK_ARG(p, o), {LK_ARG(p, lse)});
}

void check_attention_backward(const lk_attention_backward_params& p) {
  const lk::Check check("attention_backward");
  check_inputs(check, p);
  check.floating(LK_ARG(p, d_o));
  check.shape(LK_ARG(p, d_o), lk::shape_of(p.q));
  check.floating(LK_ARG(p, o));
  check.shape(LK_ARG(p, o), lk::shape_of(p.q));
  check.dtype(LK_ARG(p, lse), LK_F32);
  check.shape(LK_ARG(p, lse), {p.q.dims[0], p.q.dims[2], p.q.dims[1]});
  check.floating(LK_ARG(p, dq));
  check.shape(LK_ARG(p, dq), lk::shape_of(p.q));
  check.floating(LK_ARG(p, dk));
  check.shape(LK_ARG(p, dk), lk::shape_of(p.k));
  check.floating(LK_ARG(p, dv));
  check.shape(LK_ARG(p, dv), lk::shape_of(p.k));
  for (const lk::Arg& output : {LK_ARG(p, dq), LK_ARG(p, dk), LK_ARG(p, dv)}) {
    check.separate(output, {LK_ARG(p, d_o), LK_ARG(p, q), LK_ARG(p, k), LK_ARG(p, v), LK_ARG(p, o), LK_ARG(p, lse),
                            LK_ARG(p, bias), LK_ARG(p, key_lengths)});
  }
  check.separate(LK_ARG(p, dq), {LK_ARG(p, dk), LK_ARG(p, dv)});
  check.separate(LK_ARG(p, dk), {LK_ARG(p, dv)});
}

}  // namespace

LK_DEFINE_OP(attention, lk_attention_params)
LK_DEFINE_OP(attention_backward, lk_attention_backward_params)
