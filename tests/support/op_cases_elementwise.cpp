// Elementwise ops: functions of one tensor, of two with broadcasting, where and cast.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "lora_host/abi.h"
#include "support/op_cases.h"

namespace lh::test {
namespace {

void add_unary(std::vector<OpCase>& cases, const std::string& op, double (*f)(double), double low = -3, double high = 3,
               const Attrs& attrs = {}, const std::string& note = "") {
  for (const Dims& dims : {Dims{1}, Dims{31, 33}})
    cases.push_back({op,
                     {{dims, low, high}},
                     attrs,
                     1,
                     [f](const Inputs& v) {
                       Values y;
                       for (const double x : v[0]) y.push_back(f(x));
                       return std::vector<Values>{y};
                     },
                     1,
                     note});
}

OpCase binary(const std::string& op, double (*f)(double, double), const OpInput& a, const OpInput& b, const Dims& out,
              const std::string& note) {
  return {op,
          {a, b},
          {},
          1,
          [=](const Inputs& v) {
            Values y;
            each_index(out,
                       [&](const Dims& i) { y.push_back(f(v[0][place_of(a.dims, i)], v[1][place_of(b.dims, i)])); });
            return std::vector<Values>{y};
          },
          1,
          note};
}

// The second operand lies between the grid points of the first, so that max and min never see equal values.
void add_binary(std::vector<OpCase>& cases, const std::string& op, double (*f)(double, double), double low = -0.99975,
                double high = 1.00025) {
  cases.push_back(binary(op, f, {{31, 33}}, {{31, 33}, low, high}, {31, 33}, "same"));
  cases.push_back(binary(op, f, {{2, 31, 3}}, {{31, 1}, low, high}, {2, 31, 3}, "second_repeated"));
  cases.push_back(binary(op, f, {{1}}, {{5, 33}, low, high}, {5, 33}, "first_repeated"));
  cases.push_back(binary(op, f, {{3, 1, 7}}, {{31, 1}, low, high}, {3, 31, 7}, "both_repeated"));
  cases.push_back(binary(op, f, {{33}}, {{33}, low, high, Storage::f32}, {33}, "float32_second"));
}

constexpr int64_t int_low = -9, int_high = 9;

OpInput ints(Dims dims) { return ids(std::move(dims), int_low, int_high); }

OpCase int_unary(const std::string& op, double (*f)(double), const Attrs& attrs = {}) {
  return {op,
          {ints({31, 33})},
          attrs,
          1,
          [f](const Inputs& v) {
            Values y;
            for (const double x : v[0]) y.push_back(f(x));
            return std::vector<Values>{y};
          },
          1,
          "int32"};
}

void add_comparison(std::vector<OpCase>& cases, const std::string& op, double (*f)(double, double)) {
  cases.push_back(binary(op, f, {{31, 33}}, {{31, 33}}, {31, 33}, "same"));
  cases.push_back(binary(op, f, {{3, 1, 7}}, {{31, 1}}, {3, 31, 7}, "both_repeated"));
  cases.push_back(binary(op, f, {{33}}, {{1}, -0.5, 0.5, Storage::f32}, {33}, "float32_second"));
  cases.push_back(binary(op, f, ints({3, 31, 7}), ints({31, 1}), {3, 31, 7}, "int32"));
}

OpCase where(const OpInput& condition, const OpInput& a, const OpInput& b, const Dims& out, const std::string& note) {
  return {
      "where/1",
      {condition, a, b},
      {},
      1,
      [=](const Inputs& v) {
        Values y;
        each_index(out, [&](const Dims& i) {
          y.push_back(v[0][place_of(condition.dims, i)] != 0 ? v[1][place_of(a.dims, i)] : v[2][place_of(b.dims, i)]);
        });
        return std::vector<Values>{y};
      },
      1,
      note};
}

double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

OpCase cast(const char* note, int64_t dtype, const OpInput& x = {{31, 33}}) {
  return {"cast/1", {x}, {{"dtype", dtype}}, 1, [](const Inputs& v) { return v; }, 1, note};
}

OpCase cast_to_integers() {
  const auto nearest = [](const Inputs& v) {
    Values y;
    for (const double x : v[0]) y.push_back(std::nearbyint(x));
    return std::vector<Values>{y};
  };
  return {"cast/1",  {{{31, 33}, -8, 8, Storage::tested, false}}, {{"dtype", int64_t{LH_I32}}}, 1, nearest, 1,
          "to_int32"};
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> c;
  add_unary(c, "silu/1", [](double x) { return x / (1 + std::exp(-x)); });
  add_unary(c, "gelu/1", gelu_tanh, -3, 3, {}, "default");
  add_unary(c, "gelu/1", gelu_tanh, -3, 3, {{"mode", std::string("tanh")}}, "tanh");
  add_unary(c, "gelu/1", gelu_erf, -3, 3, {{"mode", std::string("erf")}}, "erf");
  add_unary(
      c, "gelu/1", [](double x) { return x / (1 + std::exp(-1.702 * x)); }, -3, 3, {{"mode", std::string("quick")}},
      "quick");
  add_unary(c, "sigmoid/1", [](double x) { return 1 / (1 + std::exp(-x)); });
  add_unary(c, "tanh/1", [](double x) { return std::tanh(x); });
  add_unary(c, "relu/1", [](double x) { return std::max(x, 0.0); });
  add_unary(c, "exp/1", [](double x) { return std::exp(x); });
  add_unary(
      c, "sqrt/1", [](double x) { return std::sqrt(x); }, 0.1, 3);
  add_unary(
      c, "rsqrt/1", [](double x) { return 1 / std::sqrt(x); }, 0.1, 3);
  add_unary(c, "abs/1", [](double x) { return std::fabs(x); });
  add_unary(c, "sign/1", [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; });
  add_unary(c, "square/1", [](double x) { return x * x; });
  add_unary(c, "sin/1", [](double x) { return std::sin(x); });
  add_unary(c, "cos/1", [](double x) { return std::cos(x); });
  add_unary(
      c, "log/1", [](double x) { return std::log(x); }, 0.1, 3);
  add_unary(c, "floor/1", [](double x) { return std::floor(x); });
  add_unary(c, "ceil/1", [](double x) { return std::ceil(x); });
  add_unary(c, "round/1", [](double x) { return std::nearbyint(x); });
  add_unary(
      c, "affine/1", [](double x) { return x; }, -3, 3, {}, "default");
  add_unary(c, "affine/1", [](double x) { return -1.5 * x + 0.25; }, -3, 3, {{"scale", -1.5}, {"shift", 0.25}});
  add_unary(c, "clamp/1", [](double x) { return std::clamp(x, -0.5, 1.0); }, -3, 3, {{"low", -0.5}, {"high", 1.0}});
  add_binary(c, "add/1", [](double a, double b) { return a + b; });
  add_binary(c, "sub/1", [](double a, double b) { return a - b; });
  add_binary(c, "mul/1", [](double a, double b) { return a * b; });
  add_binary(
      c, "div/1", [](double a, double b) { return a / b; }, 0.5, 2);
  add_binary(c, "max/1", [](double a, double b) { return std::max(a, b); });
  add_binary(c, "min/1", [](double a, double b) { return std::min(a, b); });
  add_comparison(c, "equal/1", [](double a, double b) { return a == b ? 1.0 : 0.0; });
  add_comparison(c, "less/1", [](double a, double b) { return a < b ? 1.0 : 0.0; });
  add_comparison(c, "less_equal/1", [](double a, double b) { return a <= b ? 1.0 : 0.0; });
  add_comparison(c, "greater/1", [](double a, double b) { return a > b ? 1.0 : 0.0; });
  add_comparison(c, "greater_equal/1", [](double a, double b) { return a >= b ? 1.0 : 0.0; });
  for (const Dims& dims : {Dims{1}, Dims{31, 33}}) c.push_back(where(ids(dims, 0, 2), {dims}, {dims}, dims, "same"));
  c.push_back(where(ids({31, 1}, 0, 2), {{2, 31, 33}}, {{1}}, {2, 31, 33}, "repeated"));
  c.push_back(where(ids({2, 1, 7}, 0, 2), {{31, 1}}, {{7}}, {2, 31, 7}, "all_repeated"));
  c.push_back(where({{31, 33}, 0, 1, Storage::f32, false}, {{33}}, {{33}, -1, 1, Storage::f32}, {31, 33}, "float32"));
  c.push_back(where(ids({31, 1}, 0, 2), ints({31, 33}), ints({1}), {31, 33}, "int32"));
  const struct {
    const char* op;
    double (*f)(double, double);
  } integer_ops[] = {{"add/1", [](double a, double b) { return a + b; }},
                     {"sub/1", [](double a, double b) { return a - b; }},
                     {"mul/1", [](double a, double b) { return a * b; }},
                     {"max/1", [](double a, double b) { return std::max(a, b); }},
                     {"min/1", [](double a, double b) { return std::min(a, b); }}};
  for (const auto& i : integer_ops) {
    c.push_back(binary(i.op, i.f, ints({31, 33}), ints({31, 33}), {31, 33}, "int32"));
    c.push_back(binary(i.op, i.f, ints({3, 1, 7}), ints({31, 1}), {3, 31, 7}, "int32_repeated"));
  }
  c.push_back(int_unary("relu/1", [](double x) { return std::max(x, 0.0); }));
  c.push_back(int_unary("abs/1", [](double x) { return std::fabs(x); }));
  c.push_back(int_unary("sign/1", [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; }));
  c.push_back(int_unary("square/1", [](double x) { return x * x; }));
  c.push_back(int_unary("affine/1", [](double x) { return -3 * x + 7; }, {{"scale", -3.0}, {"shift", 7.0}}));
  c.push_back(int_unary("clamp/1", [](double x) { return std::clamp(x, -2.0, 5.0); }, {{"low", -2.0}, {"high", 5.0}}));
  c.push_back(cast("to_float32", LH_F32));
  c.push_back(cast("to_float16", LH_F16));
  c.push_back(cast("to_bfloat16", LH_BF16));
  c.push_back(cast("to_host_type", LH_FLOAT));
  c.push_back(cast("int32_to_host_type", LH_FLOAT, ints({31, 33})));
  c.push_back(cast_to_integers());
  return c;
}

}  // namespace lh::test
