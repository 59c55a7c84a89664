// Plugin "samplers": integrators of the denoising equation.
#include "lora_host/lora_host.hpp"

namespace samplers {
namespace {

using lora_host::Dims;
using lora_host::Graph;
using lora_host::Value;

constexpr const char* nothing_carried[] = {nullptr};

// Euler for flow models, where model_out = dx / dsigma: x + (sigma_next - sigma) model_out.
void build_flow_euler(Graph& g, uint32_t /*stage*/, const Dims& latents) {
  Value x = g.input("x", latents), velocity = g.input("model_out", latents);
  Value sigma = g.input("sigma", {1}, LH_F32), sigma_next = g.input("sigma_next", {1}, LH_F32);
  g.output("x", g.add(x, g.mul(velocity, g.sub(sigma_next, sigma))));
}

constexpr lh_sampler flow_euler = lora_host::sampler<build_flow_euler>("flow_euler", "flow", 1, nothing_carried);

}  // namespace
}  // namespace samplers

LORA_HOST_PLUGIN("samplers", "0.1.0", "MIT OR Apache-2.0", {LH_SAMPLER_FACTORY, &samplers::flow_euler})
