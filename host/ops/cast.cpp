// cast: another storage type. dtype 100 (LH_FLOAT) is the type the host computes in.
// weight_values: a weight that is kept in fewer bits, times its scale, in float32; only host passes use it.
#include "lora_host/abi.h"
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  const int64_t dtype = a.attrs.i("dtype");
  expect(dtype == LH_FLOAT || (dtype >= LH_F32 && dtype <= LH_U8), fmt::format("unknown dtype {}", dtype));
  return {{dtype == LH_FLOAT ? a.compute : static_cast<DType>(dtype), x.shape}};
}

void gradient(Gradient& g) { g.set(0, g.cast_like(g.dout(), g.in(0))); }

std::vector<Desc> infer_values(const Infer& a) { return {{DType::f32, required(a, 0).shape}}; }

lk_status launch(const Launch& l) {
  lk_cast_params p{};
  p.x = l.in[0];
  if (l.in.size() > 1) p.scale = l.in[1];
  p.y = l.out[0];
  return lk_cast(l.context, &p);
}

}  // namespace

const OpDef cast_op{.name = "cast/1", .infer = infer, .gradient = gradient, .launch = launch, .elementwise = true};
const OpDef weight_values_op{.name = "weight_values", .infer = infer_values, .launch = launch};

}  // namespace lh
