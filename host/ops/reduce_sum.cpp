// sum and mean over axes, which stay as 1. A sum of int32 is exact modulo 2^32.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  Shape shape = x.shape;
  for (const int64_t axis : a.attrs.list("axes")) shape = shape.with(axis_of(x, axis), 1);
  return {{x.dtype, std::move(shape)}};
}

std::vector<Desc> infer_sum(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(is_float(x.dtype) || x.dtype == DType::i32, "x must be floating or int32, is " + x.text());
  return infer(a);
}

std::vector<Desc> infer_mean(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(is_float(x.dtype), "x must be floating, is " + x.text() + "; cast it first");
  return infer(a);
}

lk_status launch_scaled(const Launch& l, double scale) {
  lk_reduce_sum_params p{.x = l.in[0], .y = l.out[0], .scale = static_cast<float>(scale)};
  return lk_reduce_sum(l.context, &p);
}

double ratio(int64_t reduced, int64_t full) { return static_cast<double>(reduced) / static_cast<double>(full); }

void spread(Gradient& g, double scale) {
  Value d = g.dout();
  if (scale != 1) d = g.emit(affine_op, {d}, {{"scale", scale}, {"shift", 0.0}});
  g.set(0, g.emit(expand_op, {d}, {{"shape", g.dims(g.in(0))}}));
}

}  // namespace

const OpDef sum_op{.name = "sum/1",
                   .infer = infer_sum,
                   .gradient = [](Gradient& g) { spread(g, 1); },
                   .launch = [](const Launch& l) { return launch_scaled(l, 1); }};
const OpDef mean_op{
    .name = "mean/1",
    .infer = infer_mean,
    .gradient = [](Gradient& g) { spread(g, ratio(g.shape(g.out()).numel(), g.shape(g.in(0)).numel())); },
    .launch = [](const Launch& l) { return launch_scaled(l, ratio(lk_numel(&l.out[0]), lk_numel(&l.in[0]))); }};

}  // namespace lh
