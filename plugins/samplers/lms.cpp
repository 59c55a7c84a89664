// Linear multistep method along dx/dsigma (Adams-Bashforth with steps of any length; k-diffusion, sample_lms):
//   x' = x + sum over j of c_j d_j,   c_j = integral from sigma to sigma' of the Lagrange polynomial that is 1 at the
// sigma of d_j and 0 at those of the other derivatives. The first steps have fewer of them.
#include <algorithm>
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

// Gauss-Legendre with three points is exact for polynomials up to degree 5; order 4 has degree 3.
constexpr double places[] = {-0.77459666924148337704, 0, 0.77459666924148337704};
constexpr double shares[] = {5.0 / 9, 8.0 / 9, 5.0 / 9};

double coefficient(const Step& step, uint32_t order, uint32_t of) {
  const double from = step.sigma(), to = step.next().sigma();
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    const double sigma = (from + to) / 2 + (to - from) / 2 * places[i];
    double polynomial = 1;
    for (uint32_t k = 0; k < order; ++k)
      if (k != of)
        polynomial *= (sigma - step.previous(k).sigma()) / (step.previous(of).sigma() - step.previous(k).sigma());
    sum += shares[i] * polynomial;
  }
  return sum * (to - from) / 2;
}

class Lms : public SumSampler {
 public:
  explicit Lms(const Options& options)
      : SumSampler({"x", "derivative"}, "derivative", static_cast<uint32_t>(options.integer("order")) - 1),
        order_(static_cast<uint32_t>(options.integer("order"))) {}

 protected:
  Numbers weights(const Step& step) const override {
    const uint32_t order = std::min(order_, step.index() + 1);
    Numbers numbers{1};
    for (uint32_t j = 0; j < order; ++j) numbers.push_back(coefficient(step, order, j));
    return numbers;
  }

 private:
  uint32_t order_;
};

constexpr const char* names[] = {"k_lms", "LMSDiscreteScheduler", nullptr};
constexpr lh_option options[] = {
    option::integer("order", "4", option::within(1, 4), "Derivatives that a step is made of."), option::end};

}  // namespace

constinit const lh_sampler lms = lora_host::sampler<Lms>(
    {.id = "lms", .aliases = names, .objectives = all_models, .space = LH_SPACE_SIGMA, .options = options});

}  // namespace samplers
