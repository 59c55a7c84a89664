// DDIM without noise (Song et al. 2021, equation 12 with sigma 0): x' = alpha' denoised + sigma' epsilon.
#include "samplers.h"

namespace samplers {
namespace {

struct Ddim {
  static constexpr const char* id = "ddim";
  static constexpr const char* const* objectives = all_models;
  static constexpr int32_t space = LH_SPACE_ALPHA;
  static constexpr uint32_t stages = 1;
  static constexpr const char* const* carried = nothing;
  static constexpr const char* scalars[] = {"alpha_next", "sigma_next", nullptr};

  static void scalar_values(const Step& step, uint32_t /*stage*/, double* out) {
    out[0] = step.next().alpha();
    out[1] = step.next().sigma();
  }
  static void build(Graph& g, uint32_t /*stage*/, const Dims& latents) {
    Value picture = g.mul(g.input("denoised", latents), g.input("alpha_next", {1}, LH_F32));
    g.output("x", g.add(picture, g.mul(g.input("epsilon", latents), g.input("sigma_next", {1}, LH_F32))));
  }
};

}  // namespace

constinit const lh_sampler ddim = lora_host::sampler<Ddim>();

}  // namespace samplers
