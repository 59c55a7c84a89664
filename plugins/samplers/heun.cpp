// Heun's method along dx/dsigma (Karras et al. 2022, algorithm 2): Euler's step, and again with the mean of the
// derivatives at both ends. At the end of the run there is no second one: it would be taken at sigma 0.
//   stage 0  x_1 = x + (sigma' - sigma) d           d at (x, sigma)
//   stage 1  x'  = x + (sigma' - sigma) (d + d') / 2   d' at (x_1, sigma')
#include "churn.h"

namespace samplers {
namespace {

class Heun : public ChurnedSampler {
 public:
  using ChurnedSampler::ChurnedSampler;
  Names carried() const override { return {"x_begin", "derivative_begin"}; }

 protected:
  uint32_t own_stages() const override { return 2; }
  Names own_scalars() const override { return {"length"}; }
  Numbers own_values(const Step& step, uint32_t stage, double begin) const override {
    return {(step.next().sigma() - begin) / (stage + 1)};
  }
  double own_sigma(const Step& step, uint32_t /*stage*/, double /*begin*/) const override {
    return step.next().sigma();
  }
  void build_own(Graph& g, uint32_t stage, const Dims& latents) const override {
    Value derivative = g.input("derivative", latents, LH_F32), length = g.input("length", {1}, LH_F32);
    if (stage == 0) {
      Value x = g.input("x", latents, LH_F32);
      g.output("x", g.add(x, g.mul(derivative, length)));
      g.output("x_begin", x);
      g.output("derivative_begin", derivative);
    } else {
      Value both = g.add(g.input("derivative_begin", latents, LH_F32), derivative);
      g.output("x", g.add(g.input("x_begin", latents, LH_F32), g.mul(both, length)));
    }
  }
};

constexpr const char* names[] = {"k_heun", "HeunDiscreteScheduler", nullptr};
constexpr const char* flow_names[] = {"FlowMatchHeunDiscreteScheduler", nullptr};

}  // namespace

constinit const lh_sampler heun = lora_host::sampler<Heun>(
    {.id = "heun", .aliases = names, .objectives = all_models, .space = LH_SPACE_SIGMA, .options = churn_options});
constinit const lh_sampler flow_heun = lora_host::sampler<Heun>({.id = "flow_heun",
                                                                 .aliases = flow_names,
                                                                 .objectives = flow_models,
                                                                 .space = LH_SPACE_SIGMA,
                                                                 .options = churn_options});

}  // namespace samplers
