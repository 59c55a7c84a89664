// Elementwise ops: functions of one tensor, of two with broadcasting, where and cast.
#include "lora_host/abi.h"
#include "support/op_cases.h"
#include "support/reference/elementwise.h"

namespace lh::test {
namespace {

OpCase unary(const std::string& op, lk_unary_kind kind, const OpInput& x, const Attrs& attrs = {},
             const std::string& note = "", double a = 0, double b = 0) {
  const auto y = [=](const Inputs& v) { return std::vector<Values>{reference::unary(kind, a, b, v[0])}; };
  return {op, {x}, attrs, 1, y, 1, note};
}

void add_unary(std::vector<OpCase>& cases, const std::string& op, lk_unary_kind kind, double low = -3,
               double high = 3) {
  for (const Dims& dims : {Dims{1}, Dims{31, 33}}) cases.push_back(unary(op, kind, {dims, low, high}));
}

OpCase binary(const std::string& op, lk_binary_kind kind, const OpInput& a, const OpInput& b, const std::string& note) {
  const auto y = [=](const Inputs& v) {
    return std::vector<Values>{reference::binary(kind, a.dims, v[0], b.dims, v[1])};
  };
  return {op, {a, b}, {}, 1, y, 1, note};
}

// The second operand lies between the grid points of the first, so that max and min never see equal values.
void add_binary(std::vector<OpCase>& cases, const std::string& op, lk_binary_kind kind, double low = -0.99975,
                double high = 1.00025) {
  cases.push_back(binary(op, kind, {{31, 33}}, {{31, 33}, low, high}, "same"));
  cases.push_back(binary(op, kind, {{2, 31, 3}}, {{31, 1}, low, high}, "second_repeated"));
  cases.push_back(binary(op, kind, {{1}}, {{5, 33}, low, high}, "first_repeated"));
  cases.push_back(binary(op, kind, {{3, 1, 7}}, {{31, 1}, low, high}, "both_repeated"));
  cases.push_back(binary(op, kind, {{33}}, {{33}, low, high, Storage::f32}, "float32_second"));
}

OpInput ints(Dims dims) { return ids(std::move(dims), -9, 9); }

void add_integer_binary(std::vector<OpCase>& cases, const std::string& op, lk_binary_kind kind) {
  cases.push_back(binary(op, kind, ints({31, 33}), ints({31, 33}), "int32"));
  cases.push_back(binary(op, kind, ints({3, 1, 7}), ints({31, 1}), "int32_repeated"));
}

void add_comparison(std::vector<OpCase>& cases, const std::string& op, lk_binary_kind kind) {
  cases.push_back(binary(op, kind, {{31, 33}}, {{31, 33}}, "same"));
  cases.push_back(binary(op, kind, {{3, 1, 7}}, {{31, 1}}, "both_repeated"));
  cases.push_back(binary(op, kind, {{33}}, {{1}, -0.5, 0.5, Storage::f32}, "float32_second"));
  cases.push_back(binary(op, kind, ints({3, 31, 7}), ints({31, 1}), "int32"));
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

OpCase cast(const char* note, int64_t dtype, const OpInput& x = {{31, 33}}) {
  return {"cast/1", {x}, {{"dtype", dtype}}, 1, [](const Inputs& v) { return v; }, 1, note};
}

OpCase cast_to_integers() {
  const auto nearest = [](const Inputs& v) { return std::vector<Values>{reference::unary(LK_ROUND, 0, 0, v[0])}; };
  return {"cast/1",  {{{31, 33}, -8, 8, Storage::tested, false}}, {{"dtype", int64_t{LH_I32}}}, 1, nearest, 1,
          "to_int32"};
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> c;
  add_unary(c, "silu/1", LK_SILU);
  const OpInput x{{31, 33}, -3, 3};
  c.push_back(unary("gelu/1", LK_GELU_TANH, x, {}, "default"));
  c.push_back(unary("gelu/1", LK_GELU_TANH, x, {{"mode", std::string("tanh")}}, "tanh"));
  c.push_back(unary("gelu/1", LK_GELU_ERF, x, {{"mode", std::string("erf")}}, "erf"));
  c.push_back(unary("gelu/1", LK_GELU_QUICK, x, {{"mode", std::string("quick")}}, "quick"));
  c.push_back(unary("gelu/1", LK_GELU_TANH, {{1}, -3, 3}, {}, "one"));
  add_unary(c, "sigmoid/1", LK_SIGMOID);
  add_unary(c, "tanh/1", LK_TANH);
  add_unary(c, "relu/1", LK_RELU);
  add_unary(c, "exp/1", LK_EXP);
  add_unary(c, "sqrt/1", LK_SQRT, 0.1, 3);
  add_unary(c, "rsqrt/1", LK_RSQRT, 0.1, 3);
  add_unary(c, "abs/1", LK_ABS);
  add_unary(c, "sign/1", LK_SIGN);
  add_unary(c, "square/1", LK_SQUARE);
  add_unary(c, "sin/1", LK_SIN);
  add_unary(c, "cos/1", LK_COS);
  add_unary(c, "log/1", LK_LOG, 0.1, 3);
  add_unary(c, "floor/1", LK_FLOOR);
  add_unary(c, "ceil/1", LK_CEIL);
  add_unary(c, "round/1", LK_ROUND);
  c.push_back(unary("affine/1", LK_AFFINE, x, {}, "default", 1, 0));
  const Attrs slope{{"scale", -1.5}, {"shift", 0.25}}, ends{{"low", -0.5}, {"high", 1.0}};
  for (const Dims& dims : {Dims{1}, Dims{31, 33}}) {
    c.push_back(unary("affine/1", LK_AFFINE, {dims, -3, 3}, slope, "", -1.5, 0.25));
    c.push_back(unary("clamp/1", LK_CLAMP, {dims, -3, 3}, ends, "", -0.5, 1));
  }
  c.push_back(unary("relu/1", LK_RELU, ints({31, 33}), {}, "int32"));
  c.push_back(unary("abs/1", LK_ABS, ints({31, 33}), {}, "int32"));
  c.push_back(unary("sign/1", LK_SIGN, ints({31, 33}), {}, "int32"));
  c.push_back(unary("square/1", LK_SQUARE, ints({31, 33}), {}, "int32"));
  c.push_back(unary("affine/1", LK_AFFINE, ints({31, 33}), {{"scale", -3.0}, {"shift", 7.0}}, "int32", -3, 7));
  c.push_back(unary("clamp/1", LK_CLAMP, ints({31, 33}), {{"low", -2.0}, {"high", 5.0}}, "int32", -2, 5));
  add_binary(c, "add/1", LK_ADD);
  add_binary(c, "sub/1", LK_SUB);
  add_binary(c, "mul/1", LK_MUL);
  add_binary(c, "div/1", LK_DIV, 0.5, 2);
  add_binary(c, "max/1", LK_MAX);
  add_binary(c, "min/1", LK_MIN);
  add_integer_binary(c, "add/1", LK_ADD);
  add_integer_binary(c, "sub/1", LK_SUB);
  add_integer_binary(c, "mul/1", LK_MUL);
  add_integer_binary(c, "max/1", LK_MAX);
  add_integer_binary(c, "min/1", LK_MIN);
  add_comparison(c, "equal/1", LK_EQUAL);
  add_comparison(c, "less/1", LK_LESS);
  add_comparison(c, "less_equal/1", LK_LESS_EQUAL);
  add_comparison(c, "greater/1", LK_GREATER);
  add_comparison(c, "greater_equal/1", LK_GREATER_EQUAL);
  for (const Dims& dims : {Dims{1}, Dims{31, 33}}) c.push_back(where(ids(dims, 0, 2), {dims}, {dims}, dims, "same"));
  c.push_back(where(ids({31, 1}, 0, 2), {{2, 31, 33}}, {{1}}, {2, 31, 33}, "repeated"));
  c.push_back(where(ids({2, 1, 7}, 0, 2), {{31, 1}}, {{7}}, {2, 31, 7}, "all_repeated"));
  c.push_back(where({{31, 33}, 0, 1, Storage::f32, false}, {{33}}, {{33}, -1, 1, Storage::f32}, {31, 33}, "float32"));
  c.push_back(where(ids({31, 1}, 0, 2), ints({31, 33}), ints({1}), {31, 33}, "int32"));
  c.push_back(cast("to_float32", LH_F32));
  c.push_back(cast("to_float16", LH_F16));
  c.push_back(cast("to_bfloat16", LH_BF16));
  c.push_back(cast("to_host_type", LH_FLOAT));
  c.push_back(cast("int32_to_host_type", LH_FLOAT, ints({31, 33})));
  c.push_back(cast_to_integers());
  return c;
}

}  // namespace lh::test
