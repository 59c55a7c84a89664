// Latent consistency models (Luo et al. 2023, algorithm 3): to x0 at once, then noise of the next level.
//   lcm, flow_euler_stochastic  x' = alpha' denoised + sigma' noise   (ComfyUI; diffusers' flow Euler with
//                               stochastic_sampling)
//   lcm_boundary  the same with x0 = c_out denoised + c_skip x, the consistency function with its boundary condition
//                 (Song et al. 2023, equation 5; diffusers' LCMScheduler): s = timestep_scaling t,
//                 c_skip = 0.25 / (s^2 + 0.25), c_out = s / sqrt(s^2 + 0.25); the last step ends at x0
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

class Lcm : public SumSampler {
 public:
  explicit Lcm(const Options& options) : SumSampler({"denoised", "noise"}), s_noise_(options.real("s_noise")) {}

 protected:
  Numbers weights(const Step& step) const override { return {step.next().alpha(), s_noise_ * step.next().sigma()}; }

 private:
  double s_noise_;
};

class LcmBoundary : public SumSampler {
 public:
  explicit LcmBoundary(const Options& options)
      : SumSampler({"denoised", "x", "noise"}), scaling_(options.real("timestep_scaling")) {}

 protected:
  Numbers weights(const Step& step) const override {
    const double s = scaling_ * step.time(), norm = s * s + 0.25, skip = 0.25 / norm, out = s / std::sqrt(norm);
    if (step.last()) return {out, skip, 0};
    const double alpha = step.next().alpha();
    return {alpha * out, alpha * skip, step.next().sigma()};
  }

 private:
  double scaling_;
};

constexpr lh_option options[] = {s_noise_option, option::end};
constexpr const char* boundary_names[] = {"LCMScheduler", nullptr};
constexpr lh_option boundary_options[] = {option::real("timestep_scaling", "10", option::above(0),
                                                       "What timesteps are multiplied by before c_skip and c_out."),
                                          option::end};

}  // namespace

constinit const lh_sampler lcm =
    lora_host::sampler<Lcm>({.id = "lcm", .objectives = all_models, .space = LH_SPACE_SIGMA, .options = options});
constinit const lh_sampler flow_euler_stochastic = lora_host::sampler<Lcm>(
    {.id = "flow_euler_stochastic", .objectives = flow_models, .space = LH_SPACE_SIGMA, .options = options});
constinit const lh_sampler lcm_boundary = lora_host::sampler<LcmBoundary>({.id = "lcm_boundary",
                                                                           .aliases = boundary_names,
                                                                           .objectives = discrete_models,
                                                                           .space = LH_SPACE_ALPHA,
                                                                           .options = boundary_options});

}  // namespace samplers
