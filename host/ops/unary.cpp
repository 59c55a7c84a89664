// Elementwise functions of one tensor. Each op names its kernel kind; all share one backward op that reads the input.
#include <cmath>

#include "core/error.h"
#include "ops/ops.h"

namespace lh {
namespace {

std::vector<Desc> infer(const Infer& a) {
  const Desc& x = required(a, 0);
  expect(is_float(x.dtype), "x must be floating, is " + x.text() + "; cast it first");
  return {x};
}

// Also for int32, with whole numbers as attributes.
template <const char* const... attributes>
std::vector<Desc> infer_number(const Infer& a) {
  const Desc& x = required(a, 0);
  if (x.dtype != DType::i32) return infer(a);
  for (const char* const name : std::initializer_list<const char*>{attributes...}) {
    const double value = a.attrs.f(name);
    expect(value == std::nearbyint(value) && std::fabs(value) <= 16777216,
           fmt::format("{} must be a whole number from -2^24 to 2^24 for int32, is {}", name, value));
  }
  return {x};
}
constexpr char scale[] = "scale", shift[] = "shift", low[] = "low", high[] = "high";

lk_status run(const Launch& l, lk_unary_kind kind, double a = 0, double b = 0) {
  lk_unary_params p{};
  p.kind = kind;
  p.a = static_cast<float>(a);
  p.b = static_cast<float>(b);
  p.x = l.in[0];
  p.y = l.out[0];
  return lk_unary(l.context, &p);
}

void emit_backward(Gradient& g, lk_unary_kind kind, double a = 0, double b = 0) {
  g.set(0, g.emit(unary_backward_op, {g.dout(), g.in(0)}, {{"kind", int64_t{kind}}, {"a", a}, {"b", b}}));
}

template <lk_unary_kind kind>
constexpr OpDef plain(const char* name, std::vector<Desc> (*shape_rule)(const Infer&) = infer) {
  return {.name = name,
          .infer = shape_rule,
          .gradient = [](Gradient& g) { emit_backward(g, kind); },
          .launch = [](const Launch& l) { return run(l, kind); },
          .elementwise = true,
          .lines_in = {0},
          .lines_out = {0}};
}

std::vector<Desc> infer_gelu(const Infer& a) {
  gelu_kind(a.attrs);
  return infer(a);
}

lk_status launch_backward(const Launch& l) {
  lk_unary_backward_params p{};
  p.kind = static_cast<lk_unary_kind>(l.attrs.i("kind"));
  p.a = static_cast<float>(l.attrs.f("a"));
  p.b = static_cast<float>(l.attrs.f("b"));
  p.dy = l.in[0];
  p.x = l.in[1];
  p.dx = l.out[0];
  return lk_unary_backward(l.context, &p);
}

}  // namespace

lk_unary_kind gelu_kind(const Attrs& attrs) {
  const std::string& mode = attrs.s("mode");
  if (mode == "erf") return LK_GELU_ERF;
  if (mode == "tanh") return LK_GELU_TANH;
  if (mode == "quick") return LK_GELU_QUICK;
  fail(Code::plugin, "mode '{}' is not erf, tanh or quick", mode);
}

const OpDef silu_op = plain<LK_SILU>("silu/1");
const OpDef sigmoid_op = plain<LK_SIGMOID>("sigmoid/1");
const OpDef tanh_op = plain<LK_TANH>("tanh/1");
const OpDef relu_op = plain<LK_RELU>("relu/1", infer_number);
const OpDef exp_op = plain<LK_EXP>("exp/1");
const OpDef sqrt_op = plain<LK_SQRT>("sqrt/1");
const OpDef rsqrt_op = plain<LK_RSQRT>("rsqrt/1");
const OpDef abs_op = plain<LK_ABS>("abs/1", infer_number);
const OpDef sign_op = plain<LK_SIGN>("sign/1", infer_number);
const OpDef square_op = plain<LK_SQUARE>("square/1", infer_number);
const OpDef sin_op = plain<LK_SIN>("sin/1");
const OpDef cos_op = plain<LK_COS>("cos/1");
const OpDef log_op = plain<LK_LOG>("log/1");
const OpDef floor_op = plain<LK_FLOOR>("floor/1");
const OpDef ceil_op = plain<LK_CEIL>("ceil/1");
const OpDef round_op = plain<LK_ROUND>("round/1");
const OpDef gelu_op{.name = "gelu/1",
                    .infer = infer_gelu,
                    .gradient = [](Gradient& g) { emit_backward(g, gelu_kind(g.attrs())); },
                    .launch = [](const Launch& l) { return run(l, gelu_kind(l.attrs)); },
                    .elementwise = true,
                    .lines_in = {0},
                    .lines_out = {0}};
const OpDef affine_op{
    .name = "affine/1",
    .infer = infer_number<scale, shift>,
    // d(a x + b) = a dy: another affine, which does not keep x alive.
    .gradient =
        [](Gradient& g) {
          g.set(0, g.emit(affine_op, {g.dout()}, {{"scale", g.attrs().f("scale")}, {"shift", 0.0}}));
        },
    .launch = [](const Launch& l) { return run(l, LK_AFFINE, l.attrs.f("scale"), l.attrs.f("shift")); },
    .elementwise = true,
    .lines_in = {0},
    .lines_out = {0}};
const OpDef clamp_op{
    .name = "clamp/1",
    .infer = infer_number<low, high>,
    .gradient = [](Gradient& g) { emit_backward(g, LK_CLAMP, g.attrs().f("low"), g.attrs().f("high")); },
    .launch = [](const Launch& l) { return run(l, LK_CLAMP, l.attrs.f("low"), l.attrs.f("high")); },
    .elementwise = true,
    .lines_in = {0},
    .lines_out = {0}};
const OpDef unary_backward_op{.name = "unary_backward",
                              .infer = [](const Infer& a) -> std::vector<Desc> { return {required(a, 1)}; },
                              .launch = launch_backward,
                              .lines_in = {0, 1},
                              .lines_out = {0}};

}  // namespace lh
