// mse and huber: float32 [1], the mean over all elements of weight[b] * l(prediction - target). The op `loss` of
// training steps has further kinds, weights of places and a delta for each sample.
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc &prediction = required(a, 0), &target = required(a, 1);
  expect(prediction.shape == target.shape && prediction.shape.rank() >= 1,
         "prediction and target differ: " + prediction.text() + " and " + target.text());
  if (a.in.size() > 2 && a.in[2] != nullptr)
    expect(*a.in[2] == Desc{DType::f32, {prediction.shape[0]}}, "weight must be float32 [B], is " + a.in[2]->text());
  return {{DType::f32, {1}}};
}

template <lk_loss_kind kind>
double delta(const Attrs& attrs) {
  return kind == LK_HUBER ? attrs.f("delta") : 1;
}

template <lk_loss_kind kind>
void gradient(Gradient& g) {
  expect(!g.needs(1), "no gradient flows into a loss target");
  const Value weight = g.input_count() > 2 ? g.in(2) : Value{};
  g.set(0, g.emit(loss_backward_op, {g.dout(), g.in(0), g.in(1), weight},
                  {{"kind", int64_t{kind}}, {"delta", delta<kind>(g.attrs())}}));
}

template <lk_loss_kind kind>
lk_status launch(const Launch& l) {
  lk_loss_params p{};
  p.kind = kind;
  p.delta = static_cast<float>(delta<kind>(l.attrs));
  p.prediction = l.in[0];
  p.target = l.in[1];
  if (l.in.size() > 2) p.weight = l.in[2];
  p.loss = l.out[0];
  return lk_loss(l.context, &p);
}

// prediction, target, weight [B] or [B, ..., 1], deltas [B]; the last two may be left out.
std::vector<Desc> infer_step_loss(const Infer& a) {
  const Desc &prediction = required(a, 0), &target = required(a, 1);
  expect(prediction.shape == target.shape && prediction.shape.rank() >= 2,
         "prediction and target differ: " + prediction.text() + " and " + target.text());
  const Desc by_sample{DType::f32, {prediction.shape[0]}}, by_place{DType::f32, prediction.shape.with(-1, 1)};
  if (const Desc* weight = a.in[2])
    expect(*weight == by_sample || *weight == by_place,
           "weight must be " + by_sample.text() + " or " + by_place.text() + ", is " + weight->text());
  if (const Desc* deltas = a.in[3])
    expect(*deltas == by_sample, "deltas must be " + by_sample.text() + ", is " + deltas->text());
  return {{DType::f32, {1}}};
}

void step_loss_gradient(Gradient& g) {
  expect(!g.needs(1), "no gradient flows into a loss target");
  g.set(0, g.emit(loss_backward_op, {g.dout(), g.in(0), g.in(1), g.in(2), g.in(3)},
                  {{"kind", g.attrs().i("kind")}, {"delta", 1.0}}));
}

lk_status launch_step_loss(const Launch& l) {
  lk_loss_params p{};
  p.kind = static_cast<lk_loss_kind>(l.attrs.i("kind"));
  p.delta = 1;
  p.prediction = l.in[0];
  p.target = l.in[1];
  p.weight = l.in[2];
  p.deltas = l.in[3];
  p.loss = l.out[0];
  return lk_loss(l.context, &p);
}

lk_status launch_backward(const Launch& l) {
  lk_loss_backward_params p{};
  p.kind = static_cast<lk_loss_kind>(l.attrs.i("kind"));
  p.delta = static_cast<float>(l.attrs.f("delta"));
  p.dloss = l.in[0];
  p.prediction = l.in[1];
  p.target = l.in[2];
  p.weight = l.in[3];
  if (l.in.size() > 4) p.deltas = l.in[4];
  p.dprediction = l.out[0];
  return lk_loss_backward(l.context, &p);
}

}  // namespace

const OpDef mse_op{.name = "mse/1", .infer = infer, .gradient = gradient<LK_MSE>, .launch = launch<LK_MSE>};
const OpDef huber_op{.name = "huber/1", .infer = infer, .gradient = gradient<LK_HUBER>, .launch = launch<LK_HUBER>};
const OpDef loss_op{
    .name = "loss", .infer = infer_step_loss, .gradient = step_loss_gradient, .launch = launch_step_loss};
const OpDef loss_backward_op{.name = "loss_backward",
                             .infer = [](const Infer& a) -> std::vector<Desc> { return {required(a, 1)}; },
                             .launch = launch_backward};

}  // namespace lh
