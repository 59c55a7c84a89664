// Heun's method along dx/dsigma (Karras et al. 2022, algorithm 1 without churn): Euler's step, and again with the mean
// of the derivatives at both ends. At the end of the run there is no second one: it would be taken at sigma 0.
//   stage 0  x_1 = x + (sigma' - sigma) d           d at (x, sigma)
//   stage 1  x'  = x + (sigma' - sigma) (d + d') / 2   d' at (x_1, sigma')
#include "samplers.h"

namespace samplers {
namespace {

struct Heun {
  static constexpr const char* id = "heun";
  static constexpr const char* const* objectives = all_models;
  static constexpr int32_t space = LH_SPACE_SIGMA;
  static constexpr uint32_t stages = 2;
  static constexpr const char* carried[] = {"x_begin", "derivative_begin", nullptr};
  static constexpr const char* scalars[] = {"length", nullptr};

  static void scalar_values(const Step& step, uint32_t stage, double* out) {
    out[0] = (step.next().sigma() - step.sigma()) / (stage + 1);
  }
  static double stage_sigma(const Step& step, uint32_t /*stage*/) { return step.next().sigma(); }
  static void build(Graph& g, uint32_t stage, const Dims& latents) {
    Value derivative = g.input("derivative", latents), length = g.input("length", {1}, LH_F32);
    if (stage == 0) {
      Value x = g.input("x", latents);
      g.output("x", g.add(x, g.mul(derivative, length)));
      g.output("x_begin", x);
      g.output("derivative_begin", derivative);
    } else {
      Value both = g.add(g.input("derivative_begin", latents), derivative);
      g.output("x", g.add(g.input("x_begin", latents), g.mul(both, length)));
    }
  }
};

struct FlowHeun : Heun {
  static constexpr const char* id = "flow_heun";
  static constexpr const char* const* objectives = flow_models;
};

}  // namespace

constinit const lh_sampler heun = lora_host::sampler<Heun>();
constinit const lh_sampler flow_heun = lora_host::sampler<FlowHeun>();

}  // namespace samplers
