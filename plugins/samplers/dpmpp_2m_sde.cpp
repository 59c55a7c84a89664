// DPM-Solver++ for the stochastic equation, multistep: SDE-DPM-Solver++(2M) (Lu et al. 2022, section 6) and a third
// order form of it (k-diffusion, sample_dpmpp_2m_sde and sample_dpmpp_3m_sde). h = lambda' - lambda, h_1 and h_2 those
// of the steps before, k = (1 + eta) h, m = denoised:
//   x' = sigma' / sigma e^(-eta h) x + alpha' (1 - e^-k) m + alpha' D + s_noise sigma' sqrt(1 - e^(-2 eta h)) noise
//   2M  D = c (m - m_1) h / h_1, with c = (1 - e^-k) / 2 (midpoint) or 1 - (1 - e^-k) / k (heun)
//   3M  d_0 = (m - m_1) h / h_1, d_1 = (m_1 - m_2) h / h_2, d = d_0 - d_1, r_0 = h_1 / h, r_1 = h_2 / h,
//       D = p_2 (d_0 + d r_0 / (r_0 + r_1)) - p_3 d / (r_0 + r_1), p_2 = 1 - (1 - e^-k) / k, p_3 = p_2 / k - 1 / 2
// The first step has no D, the second of 3M D = p_2 d_0. A step that ends at sigma 0 gives m.
#include <algorithm>
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

// What every order has: of x, of denoised, of the noise.
Numbers first_order(const Step& step, double eta, double s_noise) {
  const Step next = step.next();
  if (next.sigma() <= 0) return {0, 1, 0};
  const double h = next.lambda() - step.lambda();
  return {next.sigma() / step.sigma() * std::exp(-eta * h), -next.alpha() * std::expm1(-(1 + eta) * h),
          s_noise * next.sigma() * std::sqrt(std::max(0.0, -std::expm1(-2 * eta * h)))};
}

double length(const Step& step) { return step.next().lambda() - step.lambda(); }

class Dpmpp2MSde : public SumSampler {
 public:
  explicit Dpmpp2MSde(const Options& options)
      : SumSampler({"x", "denoised", "noise"}, "denoised", 1),
        eta_(options.real("eta")),
        s_noise_(options.real("s_noise")),
        heun_(options.text("solver_type") == "heun") {}

 protected:
  Numbers weights(const Step& step) const override {
    Numbers numbers = first_order(step, eta_, s_noise_);
    if (step.first() || step.next().sigma() <= 0) return numbers;
    const double h = length(step), k = (1 + eta_) * h, grown = -std::expm1(-k);
    const double second = step.next().alpha() * (heun_ ? 1 - grown / k : grown / 2) * h / length(step.previous());
    numbers[1] += second;
    numbers.push_back(-second);
    return numbers;
  }

 private:
  double eta_, s_noise_;
  bool heun_;
};

class Dpmpp3MSde : public SumSampler {
 public:
  explicit Dpmpp3MSde(const Options& options)
      : SumSampler({"x", "denoised", "noise"}, "denoised", 2),
        eta_(options.real("eta")),
        s_noise_(options.real("s_noise")) {}

 protected:
  Numbers weights(const Step& step) const override {
    Numbers numbers = first_order(step, eta_, s_noise_);
    if (step.first() || step.next().sigma() <= 0) return numbers;
    const double h = length(step), k = (1 + eta_) * h, alpha = step.next().alpha();
    const double p2 = 1 + std::expm1(-k) / k, p3 = p2 / k - 0.5, r0 = length(step.previous()) / h;
    double d0 = alpha * p2, d1 = 0;  // D = d0 d_0 + d1 d_1
    if (step.index() > 1) {
      const double r1 = length(step.previous(2)) / h, both = alpha * (p2 * r0 - p3) / (r0 + r1);
      d0 += both;
      d1 = -both / r1;
    }
    d0 /= r0;
    numbers[1] += d0;
    numbers.insert(numbers.end(), {d1 - d0, -d1});
    return numbers;
  }

 private:
  double eta_, s_noise_;
};

constexpr const char* solvers[] = {"midpoint", "heun", nullptr};
constexpr const char* names_2m[] = {"dpmpp_2m_sde_gpu", "k_dpmpp_2m_sde", "sde-dpmsolver++", nullptr};
constexpr const char* names_3m[] = {"dpmpp_3m_sde_gpu", nullptr};
constexpr lh_option options_2m[] = {
    eta_option("1"), s_noise_option,
    option::choice("solver_type", "midpoint", solvers, "Form of the second order term."), option::end};
constexpr lh_option options_3m[] = {eta_option("1"), s_noise_option, option::end};

}  // namespace

constinit const lh_sampler dpmpp_2m_sde = lora_host::sampler<Dpmpp2MSde>({.id = "dpmpp_2m_sde",
                                                                          .aliases = names_2m,
                                                                          .objectives = all_models,
                                                                          .space = LH_SPACE_LOG_SNR,
                                                                          .options = options_2m});
constinit const lh_sampler dpmpp_3m_sde = lora_host::sampler<Dpmpp3MSde>({.id = "dpmpp_3m_sde",
                                                                          .aliases = names_3m,
                                                                          .objectives = all_models,
                                                                          .space = LH_SPACE_LOG_SNR,
                                                                          .options = options_3m});

}  // namespace samplers
