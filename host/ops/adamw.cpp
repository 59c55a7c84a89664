// adamw_update: one AdamW step; outputs the new p, m, v, which may stand in the storage of the old ones.
#include "ops/ops.h"

namespace lh {
namespace {

enum Input : size_t { P, G, M, V, LR, STEP };

std::vector<Desc> infer(const Infer& a) {
  const Desc& p = required(a, P);
  for (const size_t i : {G, M, V}) expect(required(a, i) == p, "g, m and v must be like p, which is " + p.text());
  for (const size_t i : {LR, STEP}) expect(required(a, i) == Desc{DType::f32, {1}}, "lr and step must be float32 [1]");
  return {p, p, p};
}

lk_status launch(const Launch& l) {
  lk_adamw_update_params p{};
  const size_t sources[3] = {P, M, V};
  for (size_t i = 0; i < 3; ++i) {
    if (l.out[i].data == l.in[sources[i]].data) continue;
    lk_cast_params copy{};
    copy.x = l.in[sources[i]];
    copy.y = l.out[i];
    if (const lk_status status = lk_cast(l.context, &copy); status != LK_OK) return status;
  }
  p.p = l.out[0];
  p.g = l.in[G];
  p.m = l.out[1];
  p.v = l.out[2];
  p.lr = l.in[LR];
  p.step = l.in[STEP];
  p.beta1 = static_cast<float>(l.attrs.f("beta1"));
  p.beta2 = static_cast<float>(l.attrs.f("beta2"));
  p.eps = static_cast<float>(l.attrs.f("eps"));
  p.weight_decay = static_cast<float>(l.attrs.f("weight_decay"));
  return lk_adamw_update(l.context, &p);
}

}  // namespace

const OpDef adamw_update_op{
    .name = "adamw_update/1", .infer = infer, .launch = launch, .in_place = {P, M, V}, .elementwise = true};

}  // namespace lh
