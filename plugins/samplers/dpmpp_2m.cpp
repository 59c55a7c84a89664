// DPM-Solver++(2M), midpoint form (Lu et al. 2022, algorithm 2). With lambda = log(alpha / sigma), h = lambda' - lambda
// and the last step's h_0:
//   x' = sigma' / sigma x + alpha' (1 - e^-h) (m + (m - m_0) h / (2 h_0))
// where m = denoised and m_0 that of the step before. The first step has no m_0 and the last one no finite h: both are
// first order, without the second term in the last bracket.
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

double lambda(const Step& step) { return std::log(step.alpha() / step.sigma()); }

struct Dpmpp2M {
  static constexpr const char* id = "dpmpp_2m";
  static constexpr const char* const* objectives = all_models;
  static constexpr int32_t space = LH_SPACE_LOG_SNR;
  static constexpr uint32_t stages = 1;
  static constexpr const char* carried[] = {"denoised_before", nullptr};
  static constexpr const char* scalars[] = {"of_x", "of_denoised", "of_denoised_before", nullptr};

  static void scalar_values(const Step& step, uint32_t /*stage*/, double* out) {
    const Step next = step.next();
    const double grown = next.alpha() - next.sigma() / step.sigma() * step.alpha();  // alpha' (1 - e^-h)
    double half_ratio = 0;
    if (!step.first() && !step.last())
      half_ratio = (lambda(next) - lambda(step)) / (lambda(step) - lambda(step.previous())) / 2;
    out[0] = next.sigma() / step.sigma();
    out[1] = grown * (1 + half_ratio);
    out[2] = -grown * half_ratio;
  }
  static void build(Graph& g, uint32_t /*stage*/, const Dims& latents) {
    const auto scaled = [&](const char* tensor, const char* scalar) {
      return g.mul(g.input(tensor, latents), g.input(scalar, {1}, LH_F32));
    };
    Value denoised = g.input("denoised", latents);
    Value now = g.add(scaled("x", "of_x"), g.mul(denoised, g.input("of_denoised", {1}, LH_F32)));
    g.output("x", g.add(now, scaled("denoised_before", "of_denoised_before")));
    g.output("denoised_before", denoised);
  }
};

}  // namespace

constinit const lh_sampler dpmpp_2m = lora_host::sampler<Dpmpp2M>();

}  // namespace samplers
