// The functions of lk_binary as small functors, which the loops of binary.cpp and pointwise.cpp apply.
#pragma once

namespace lk::cpu {

struct Add {
  float operator()(float a, float b) const { return a + b; }
};
struct Sub {
  float operator()(float a, float b) const { return a - b; }
};
struct Mul {
  float operator()(float a, float b) const { return a * b; }
};
struct Div {
  float operator()(float a, float b) const { return a / b; }
};
// NaN in either operand gives NaN.
struct Max {
  float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Min {
  float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};
struct GreaterEqual {
  bool operator()(float a, float b) const { return a >= b; }
};
struct Equal {
  bool operator()(float a, float b) const { return a == b; }
};
struct Less {
  bool operator()(float a, float b) const { return a < b; }
};
struct LessEqual {
  bool operator()(float a, float b) const { return a <= b; }
};
struct Greater {
  bool operator()(float a, float b) const { return a > b; }
};

}  // namespace lk::cpu
