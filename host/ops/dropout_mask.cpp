// dropout_mask: factors 0 or 1/(1-p), drawn from a counter, so that recomputation and resume give the same mask.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  expect(required(a, 0) == Desc{DType::i32, {1}}, "step must be int32 [1]");
  expect(a.attrs.f("p") >= 0 && a.attrs.f("p") < 1, "p must be in [0, 1)");
  return {{a.compute, Shape(a.attrs.list("shape"))}};
}

lk_status launch(const Launch& l) {
  lk_dropout_mask_params p{};
  p.step = l.in[0];
  p.y = l.out[0];
  p.p = static_cast<float>(l.attrs.f("p"));
  p.seed = static_cast<uint64_t>(l.attrs.i("seed"));
  p.stream = static_cast<uint64_t>(l.attrs.i("stream"));
  return lk_dropout_mask(l.context, &p);
}

}  // namespace

const OpDef dropout_mask_op{.name = "dropout_mask", .infer = infer, .launch = launch};

}  // namespace lh
