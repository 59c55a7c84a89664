// A step of Adam in single operations, where the averages are not kept as the fused op has them.
#pragma once

#include "stored.h"

namespace optim {

// Adam's averages after x has joined them, and the bias-corrected step m / (sqrt(v) + eps).
struct AdamStep {
  Value m, v, step;
};
inline AdamStep adam_step(UpdateGraph& g, const StoredStates& stored, Value x, const std::vector<double>& betas,
                          double eps) {
  const Value m = g.average(stored.read(g, "m"), x, betas[0]),
              v = g.average(stored.read(g, "v"), g.square(x), betas[1]);
  const Value root = g.sqrt(g.div(v, g.one_minus_power(betas[1], g.step())));
  return {m, v, g.div(g.div(m, g.one_minus_power(betas[0], g.step())), g.shift(root, eps))};
}

}  // namespace optim
