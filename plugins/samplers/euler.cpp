// Euler's method along dx/dsigma (Karras et al. 2022), and its ancestral form: a longer step down, then new noise, so
// that x has the noise of the next level again (k-diffusion).
//   euler            x' = denoised + sigma' derivative
//   flow_euler       x' = x + (sigma' - sigma) derivative: the same; flow models need no x0 for it
//   euler_ancestral  x' = denoised + sigma_down derivative + sigma_up noise
//                    sigma_up = sigma' sqrt(1 - (sigma' / sigma)^2), sigma_down^2 + sigma_up^2 = sigma'^2
#include <cmath>

#include "samplers.h"

namespace samplers {
namespace {

struct Euler {
  static constexpr const char* id = "euler";
  static constexpr const char* const* objectives = all_models;
  static constexpr int32_t space = LH_SPACE_SIGMA;
  static constexpr uint32_t stages = 1;
  static constexpr const char* const* carried = nothing;
  static constexpr const char* scalars[] = {"sigma_next", nullptr};

  static void scalar_values(const Step& step, uint32_t /*stage*/, double* out) { out[0] = step.next().sigma(); }
  static void build(Graph& g, uint32_t /*stage*/, const Dims& latents) {
    Value denoised = g.input("denoised", latents), derivative = g.input("derivative", latents);
    g.output("x", g.add(denoised, g.mul(derivative, g.input("sigma_next", {1}, LH_F32))));
  }
};

struct FlowEuler {
  static constexpr const char* id = "flow_euler";
  static constexpr const char* const* objectives = flow_models;
  static constexpr int32_t space = LH_SPACE_SIGMA;
  static constexpr uint32_t stages = 1;
  static constexpr const char* const* carried = nothing;
  static constexpr const char* scalars[] = {"sigma", "sigma_next", nullptr};

  static void scalar_values(const Step& step, uint32_t /*stage*/, double* out) {
    out[0] = step.sigma();
    out[1] = step.next().sigma();
  }
  static void build(Graph& g, uint32_t /*stage*/, const Dims& latents) {
    Value x = g.input("x", latents), derivative = g.input("derivative", latents);
    Value sigma = g.input("sigma", {1}, LH_F32), sigma_next = g.input("sigma_next", {1}, LH_F32);
    g.output("x", g.add(x, g.mul(derivative, g.sub(sigma_next, sigma))));
  }
};

struct EulerAncestral {
  static constexpr const char* id = "euler_ancestral";
  static constexpr const char* const* objectives = discrete_models;
  static constexpr int32_t space = LH_SPACE_SIGMA;
  static constexpr uint32_t stages = 1;
  static constexpr const char* const* carried = nothing;
  static constexpr const char* scalars[] = {"sigma_down", "sigma_up", nullptr};

  static void scalar_values(const Step& step, uint32_t /*stage*/, double* out) {
    const double next = step.next().sigma(), ratio = next / step.sigma();
    out[0] = next * ratio;
    out[1] = next * std::sqrt(1 - ratio * ratio);
  }
  static void build(Graph& g, uint32_t /*stage*/, const Dims& latents) {
    Value denoised = g.input("denoised", latents), derivative = g.input("derivative", latents);
    Value down = g.mul(derivative, g.input("sigma_down", {1}, LH_F32));
    Value up = g.mul(g.input("noise", latents), g.input("sigma_up", {1}, LH_F32));
    g.output("x", g.add(g.add(denoised, down), up));
  }
};

}  // namespace

constinit const lh_sampler euler = lora_host::sampler<Euler>();
constinit const lh_sampler flow_euler = lora_host::sampler<FlowEuler>();
constinit const lh_sampler euler_ancestral = lora_host::sampler<EulerAncestral>();

}  // namespace samplers
