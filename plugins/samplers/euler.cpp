// Euler's method along dx/dsigma (Karras et al. 2022).
//   euler         x' = denoised + sigma' derivative
//   flow_euler    x' = x + (sigma' - sigma) derivative: the same; flow models need no x0 for it
//   euler_cfg_pp  x' = denoised + sigma' derivative without the prompt (CFG++: Chung et al. 2024, algorithm 2)
#include "churn.h"

namespace samplers {
namespace {

class Euler : public ChurnedSampler {
 public:
  using ChurnedSampler::ChurnedSampler;

 protected:
  Names own_scalars() const override { return {"sigma_next"}; }
  Numbers own_values(const Step& step, uint32_t /*stage*/, double /*begin*/) const override {
    return {step.next().sigma()};
  }
  double own_sigma(const Step& /*step*/, uint32_t /*stage*/, double /*begin*/) const override { return 0; }
  void build_own(Graph& g, uint32_t /*stage*/, const Dims& latents) const override {
    Value denoised = g.input("denoised", latents, LH_F32), derivative = g.input("derivative", latents, LH_F32);
    g.output("x", g.add(denoised, g.mul(derivative, g.input("sigma_next", {1}, LH_F32))));
  }
};

class FlowEuler : public lora_host::Sampler {
 public:
  explicit FlowEuler(const Options& /*options*/) {}
  Names scalars() const override { return {"sigma", "sigma_next"}; }
  Numbers scalar_values(const Step& step, uint32_t /*stage*/) const override {
    return {step.sigma(), step.next().sigma()};
  }
  void build(Graph& g, uint32_t /*stage*/, const Dims& latents) const override {
    Value x = g.input("x", latents, LH_F32), derivative = g.input("derivative", latents, LH_F32);
    Value sigma = g.input("sigma", {1}, LH_F32), sigma_next = g.input("sigma_next", {1}, LH_F32);
    g.output("x", g.add(x, g.mul(derivative, g.sub(sigma_next, sigma))));
  }
};

class EulerCfgPp : public SumSampler {
 public:
  explicit EulerCfgPp(const Options& /*options*/) : SumSampler({"denoised", "uncond_derivative"}) {}

 protected:
  Numbers weights(const Step& step) const override { return {1, step.next().sigma()}; }
};

constexpr const char* euler_names[] = {"k_euler", "EulerDiscreteScheduler", nullptr};
constexpr const char* flow_names[] = {"FlowMatchEulerDiscreteScheduler", nullptr};

}  // namespace

constinit const lh_sampler euler = lora_host::sampler<Euler>({.id = "euler",
                                                              .aliases = euler_names,
                                                              .objectives = all_models,
                                                              .space = LH_SPACE_SIGMA,
                                                              .options = churn_options});
constinit const lh_sampler flow_euler = lora_host::sampler<FlowEuler>(
    {.id = "flow_euler", .aliases = flow_names, .objectives = flow_models, .space = LH_SPACE_SIGMA});
constinit const lh_sampler euler_cfg_pp =
    lora_host::sampler<EulerCfgPp>({.id = "euler_cfg_pp", .objectives = discrete_models, .space = LH_SPACE_SIGMA});

}  // namespace samplers
