// The second moment of adafactor, CAME and automagic: of a tensor with two axes or more the averages of g^2 over its
// last axis (row) and over the one before (col), of others the average of every element.
//   1 / sqrt(v) = 1 / sqrt(row / mean(row)) * 1 / sqrt(col)     (Shazeer & Stern 2018, as transformers has it)
#pragma once

#include "optimizers.h"

namespace optim {

class SecondMoment {
 public:
  // Names of its states: one for a vector, two otherwise. They outlive the rule.
  constexpr SecondMoment(const char* row, const char* col, const char* full) : row_(row), col_(col), full_(full) {}

  static bool factored(const Parameter& p) { return p.dims.size() >= 2; }

  void add_states(States& states, const Parameter& p) const {
    if (!factored(p)) return states.push_back(State::like(p, full_));
    const size_t rank = p.dims.size();
    Dims row = p.dims, col = p.dims;
    row[rank - 1] = col[rank - 2] = 1;
    states.push_back({row_, row});
    states.push_back({col_, col});
  }

  // 1 / sqrt(v) after `square` joined the averages: average = decay average + rest square. rest: 1 - decay, [1], given
  // apart because float32 loses its digits where decay is near 1.
  Value root(UpdateGraph& g, const Parameter& p, Value square, Value decay, Value rest) const {
    const auto next = [&](const char* name, Value now) {
      const Value average = g.add(g.mul(g.state(name), decay), g.mul(now, rest));
      g.set(name, average);
      return average;
    };
    if (!factored(p)) return g.rsqrt(next(full_, square));
    const Value row = next(row_, g.mean(square, {-1})), col = next(col_, g.mean(square, {-2}));
    return g.mul(g.rsqrt(g.div(row, g.mean(row, {-2}))), g.rsqrt(col));
  }
  Value root(UpdateGraph& g, const Parameter& p, Value square, double decay) const {
    return root(g, p, square, g.number(decay), g.number(1 - decay));
  }

 private:
  const char *row_, *col_, *full_;
};

inline std::vector<int64_t> all_axes(const Parameter& p) {
  std::vector<int64_t> axes(p.dims.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  return axes;
}

// sqrt(mean(x^2)), every axis 1.
inline Value rms(UpdateGraph& g, const Parameter& p, Value x) { return g.sqrt(g.mean(g.square(x), all_axes(p))); }

// x / max(1, rms(x) / threshold)
inline Value clipped(UpdateGraph& g, const Parameter& p, Value x, double threshold) {
  return g.div(x, g.max(g.scale(rms(g, p, x), 1 / threshold), g.number(1)));
}

}  // namespace optim
