// DDIM (Song et al. 2021, equation 12): x' = alpha' denoised + sqrt(sigma'^2 - s^2) epsilon + s noise, with
// s = eta sigma' / sigma sqrt(sigma^2 - (alpha / alpha' sigma')^2). eta 0, the default, is without noise.
#include <algorithm>
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

class Ddim : public SumSampler {
 public:
  explicit Ddim(const Options& options)
      : SumSampler(options.real("eta") > 0 ? Names{"denoised", "epsilon", "noise"} : Names{"denoised", "epsilon"}),
        eta_(options.real("eta")) {}

 protected:
  Numbers weights(const Step& step) const override {
    const double alpha = step.next().alpha(), sigma = step.next().sigma();
    if (eta_ == 0) return {alpha, sigma};
    const double kept = step.alpha() / alpha * sigma;
    const double fresh =
        eta_ * sigma / step.sigma() * std::sqrt(std::max(0.0, step.sigma() * step.sigma() - kept * kept));
    return {alpha, std::sqrt(std::max(0.0, sigma * sigma - fresh * fresh)), fresh};
  }

 private:
  double eta_;
};

constexpr const char* names[] = {"DDIMScheduler", nullptr};
constexpr lh_option options[] = {option::real("eta", "0", option::within(0, 1), "New noise of a step; 0: none."),
                                 option::end};

}  // namespace

constinit const lh_sampler ddim = lora_host::sampler<Ddim>(
    {.id = "ddim", .aliases = names, .objectives = all_models, .space = LH_SPACE_ALPHA, .options = options});

}  // namespace samplers
