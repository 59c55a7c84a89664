// DPM-Solver-2 (Lu et al. 2022; as in Karras et al. 2022 and k-diffusion, sample_dpm_2): a midpoint method whose
// midpoint is the geometric mean of the sigmas. The last step, which ends at sigma 0, is Euler's.
//   stage 0  x_m = x + (sigma_m - sigma) d           d at (x, sigma),   sigma_m = sqrt(sigma sigma')
//   stage 1  x'  = x + (sigma' - sigma) d_m          d_m at (x_m, sigma_m)
#include <cmath>

#include "churn.h"

namespace samplers {
namespace {

class Dpm2 : public ChurnedSampler {
 public:
  using ChurnedSampler::ChurnedSampler;
  Names carried() const override { return {"x_begin"}; }

 protected:
  uint32_t own_stages() const override { return 2; }
  Names own_scalars() const override { return {"length"}; }
  Numbers own_values(const Step& step, uint32_t stage, double begin) const override {
    const double end = step.next().sigma();
    return {(stage == 0 && end > 0 ? std::sqrt(begin * end) : end) - begin};
  }
  double own_sigma(const Step& step, uint32_t /*stage*/, double begin) const override {
    return std::sqrt(begin * step.next().sigma());
  }
  void build_own(Graph& g, uint32_t stage, const Dims& latents) const override {
    Value move = g.mul(g.input("derivative", latents, LH_F32), g.input("length", {1}, LH_F32));
    Value x = g.input(stage == 0 ? "x" : "x_begin", latents, LH_F32);
    if (stage == 0) g.output("x_begin", x);
    g.output("x", g.add(x, move));
  }
};

constexpr const char* names[] = {"dpm2", "k_dpm_2", "KDPM2DiscreteScheduler", nullptr};

}  // namespace

constinit const lh_sampler dpm_2 = lora_host::sampler<Dpm2>(
    {.id = "dpm_2", .aliases = names, .objectives = all_models, .space = LH_SPACE_SIGMA, .options = churn_options});

}  // namespace samplers
