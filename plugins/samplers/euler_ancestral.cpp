// Euler's method with new noise at each step: a longer step down, then up again to the noise of the next level.
//   discrete  x' = denoised + down derivative + up noise                                   (k-diffusion)
//   flow      down = sigma' (1 + (sigma' / sigma - 1) eta),   x_d = denoised + down derivative scaled to alpha':
//             x' = alpha' / (1 - down) x_d + sqrt(sigma'^2 - (alpha' / (1 - down))^2 down^2) noise     (ComfyUI, RF)
// with x_d = down / sigma x + (1 - down / sigma) denoised.
#include <algorithm>
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

class EulerAncestral : public SumSampler {
 public:
  explicit EulerAncestral(const Options& options)
      : SumSampler({"denoised", "derivative", "noise"}), eta_(options.real("eta")), s_noise_(options.real("s_noise")) {}

 protected:
  Numbers weights(const Step& step) const override {
    const double next = step.next().sigma();
    if (!step.flow()) {
      const auto [down, up] = ancestral(step.sigma(), next, eta_);
      return {1, down, up * s_noise_};
    }
    const double down = std::max(0.0, next * (1 + (next / step.sigma() - 1) * eta_));
    const double scale = step.next().alpha() / (1 - down);
    // (1 - down / sigma) denoised + down / sigma x, with x = denoised + sigma derivative.
    return {scale, scale * down, s_noise_ * std::sqrt(std::max(0.0, next * next - scale * scale * down * down))};
  }

 private:
  double eta_, s_noise_;
};

constexpr const char* names[] = {"euler_a", "k_euler_a", "euler_ancestral_RF", "EulerAncestralDiscreteScheduler",
                                 nullptr};
constexpr lh_option options[] = {eta_option("1"), s_noise_option, option::end};

}  // namespace

constinit const lh_sampler euler_ancestral = lora_host::sampler<EulerAncestral>(
    {.id = "euler_ancestral", .aliases = names, .objectives = all_models, .space = LH_SPACE_SIGMA, .options = options});

}  // namespace samplers
