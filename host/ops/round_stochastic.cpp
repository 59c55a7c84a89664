// round_stochastic: float32 to bfloat16, rounded at random so that the mean is the value; drawn from a counter, so that
// resume gives the same bits.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &x = required(a, 0), &step = required(a, 1);
  expect(x.dtype == DType::f32, "x must be float32, is " + x.text());
  expect(step == Desc{DType::i32, {1}}, "step must be int32 [1], is " + step.text());
  return {{DType::bf16, x.shape}};
}

lk_status launch(const Launch& l) {
  lk_round_stochastic_params p{.x = l.in[0], .step = l.in[1], .y = l.out[0]};
  p.seed = static_cast<uint64_t>(l.attrs.i("seed"));
  p.stream = static_cast<uint64_t>(l.attrs.i("stream"));
  return lk_round_stochastic(l.context, &p);
}

}  // namespace

// An element's number depends on its place, too, but as a draw: any order of the elements is as good.
const OpDef round_stochastic_op{.name = "round_stochastic/1", .infer = infer, .launch = launch, .elementwise = true};

}  // namespace lh
