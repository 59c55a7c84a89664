// timestep_embedding: sinusoids of t f32 [B] -> [B, dim] in the type the host computes in.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& t = required(a, 0);
  const int64_t dim = a.attrs.i("dim");
  expect(t.dtype == DType::f32 && t.shape.rank() == 1, "t must be float32 [B], is " + t.text());
  expect(dim > 0 && dim % 2 == 0, fmt::format("dim must be even and positive, is {}", dim));
  return {{a.compute, {t.shape[0], dim}}};
}

lk_status launch(const Launch& l) {
  lk_timestep_embedding_params p{};
  p.t = l.in[0];
  p.y = l.out[0];
  p.max_period = l.attrs.f("max_period");
  p.scale = l.attrs.f("scale");
  p.sin_first = static_cast<int32_t>(l.attrs.i("sin_first"));
  return lk_timestep_embedding(l.context, &p);
}

}  // namespace

const OpDef timestep_embedding_op{.name = "timestep_embedding/1", .infer = infer, .launch = launch};

}  // namespace lh
