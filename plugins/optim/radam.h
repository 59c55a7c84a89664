// The rectification of RAdam (Liu et al. 2019): how far the average of g^2 can be trusted after t steps.
//   rho_inf = 2 / (1 - b2) - 1;  rho = rho_inf - 2 t b2^t / (1 - b2^t)
//   rect = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho)) where rho is above 4
#pragma once

#include <cmath>

#include "optimizers.h"

namespace optim {

class Rectification {
 public:
  Rectification(UpdateGraph& g, double beta2) {
    const double inf = 2 / (1 - beta2) - 1;
    const Value rho = length(g, beta2, inf), four = g.number(4), safe = g.max(rho, four);
    const Value product = g.mul(g.shift(safe, -4), g.div(g.shift(safe, -2), safe));
    rect = g.sqrt(g.scale(product, inf / ((inf - 4) * (inf - 2))));
    defined = g.greater(rho, four);
  }
  Value rect, defined;  // [1]

 private:
  // The formula of rho loses its digits to cancellation while x = -t ln b2 is small. With
  // 1 / (e^x - 1) = 1/x - 1/2 + x/12 - x^3/720 + x^5/30240 - ... and 2 t / x a constant, none are lost.
  static Value length(UpdateGraph& g, double beta2, double inf) {
    const double rate = -std::log(beta2);
    const Value t = g.step(), x = g.scale(t, rate), xx = g.square(x);
    Value series = g.shift(g.scale(xx, -1.0 / 15120), 1.0 / 360);
    series = g.shift(g.mul(series, xx), -1.0 / 6);
    series = g.shift(g.mul(t, g.shift(g.mul(series, x), 1)), inf - 2 / rate);
    const Value power = g.power(beta2, t);
    const Value direct = g.affine(g.div(g.mul(t, power), g.affine(power, -1, 1)), -2, inf);
    return g.where(g.less(x, g.number(1)), series, direct);
  }
};

}  // namespace optim
