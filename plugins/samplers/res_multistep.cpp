// RES, the refined exponential solver, as a multistep method (Zhang et al. 2023; ComfyUI, sample_res_multistep). In
// t = -log sigma, with an ancestral step from sigma down to sigma_d, h = t_d - t, and p the one before:
//   x_d = e^-h x + h (b_1 m + b_2 m_p),   m = denoised
//   b_2 = phi_2 / c,  b_1 = phi_1 - b_2,  phi_1 = (1 - e^-h) / h,  phi_2 = (phi_1 - 1) / -h,  c = (t_p - t_pd) / h
// and x' = x_d + up noise. The first step and one that goes down to 0 are Euler's.
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

// Of x, of m, of m_p.
Numbers solver(const Step& step, double eta) {
  const double down = ancestral(step.sigma(), step.next().sigma(), eta).down, rest = down / step.sigma();
  if (step.first() || down <= 0) return {rest, 1 - rest, 0};
  const Step before = step.previous();
  const double h = -std::log(rest), before_down = ancestral(before.sigma(), step.sigma(), eta).down;
  const double c = std::log(before_down / before.sigma()) / h;
  const double phi1 = -std::expm1(-h) / h, phi2 = (1 - phi1) / h, b2 = phi2 / c;
  return {rest, h * (phi1 - b2), h * b2};
}

class ResMultistep : public SumSampler {
 public:
  explicit ResMultistep(const Options& /*options*/) : SumSampler({"x", "denoised"}, "denoised", 1) {}

 protected:
  Numbers weights(const Step& step) const override { return solver(step, 0); }
};

class ResMultistepAncestral : public SumSampler {
 public:
  explicit ResMultistepAncestral(const Options& options)
      : SumSampler({"x", "denoised", "noise"}, "denoised", 1),
        eta_(options.real("eta")),
        s_noise_(options.real("s_noise")) {}

 protected:
  Numbers weights(const Step& step) const override {
    Numbers numbers = solver(step, eta_);
    numbers.insert(numbers.begin() + 2, s_noise_ * ancestral(step.sigma(), step.next().sigma(), eta_).up);
    return numbers;
  }

 private:
  double eta_, s_noise_;
};

constexpr lh_option options[] = {option::real("eta", "1", option::within(0, 1), "New noise of a step; 0: none."),
                                 s_noise_option, option::end};

}  // namespace

constinit const lh_sampler res_multistep =
    lora_host::sampler<ResMultistep>({.id = "res_multistep", .objectives = all_models, .space = LH_SPACE_SIGMA});
constinit const lh_sampler res_multistep_ancestral = lora_host::sampler<ResMultistepAncestral>(
    {.id = "res_multistep_ancestral", .objectives = discrete_models, .space = LH_SPACE_SIGMA, .options = options});

}  // namespace samplers
