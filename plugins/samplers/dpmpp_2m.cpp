// DPM-Solver++(2M), midpoint form (Lu et al. 2022, algorithm 2). With h = lambda' - lambda and the last step's h_0:
//   x' = sigma' / sigma x + alpha' (1 - e^-h) (m + (m - m_0) h / (2 h_0))
// where m = denoised and m_0 that of the step before. The first step has no m_0 and a last one that ends at sigma 0 no
// finite h: both are first order, without the second term in the last bracket.
#include "samplers.h"

namespace samplers {
namespace {

class Dpmpp2M : public SumSampler {
 public:
  explicit Dpmpp2M(const Options& /*options*/) : SumSampler({"x", "denoised"}, "denoised", 1) {}

 protected:
  Numbers weights(const Step& step) const override {
    const Step next = step.next();
    const double grown = next.alpha() - next.sigma() / step.sigma() * step.alpha();  // alpha' (1 - e^-h)
    double half_ratio = 0;
    if (!step.first() && next.sigma() > 0)
      half_ratio = (next.lambda() - step.lambda()) / (step.lambda() - step.previous().lambda()) / 2;
    return {next.sigma() / step.sigma(), grown * (1 + half_ratio), -grown * half_ratio};
  }
};

constexpr const char* names[] = {"k_dpmpp_2m", "dpmsolver++", "DPMSolverMultistepScheduler", nullptr};

}  // namespace

constinit const lh_sampler dpmpp_2m = lora_host::sampler<Dpmpp2M>(
    {.id = "dpmpp_2m", .aliases = names, .objectives = all_models, .space = LH_SPACE_LOG_SNR});

}  // namespace samplers
