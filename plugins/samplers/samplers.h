// The samplers of this plugin, one file for each method, and what several of them share.
//
// lambda is log(alpha / sigma), half of log SNR; a prime marks the level that a step ends at.
#pragma once

#include <map>

#include "lora_host/lora_host.hpp"

namespace samplers {

using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Options;
using lora_host::Step;
using lora_host::Value;
namespace option = lora_host::option;

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;

inline constexpr const char* all_models[] = {"flow", "epsilon", "v_prediction", nullptr};
inline constexpr const char* flow_models[] = {"flow", nullptr};
inline constexpr const char* discrete_models[] = {"epsilon", "v_prediction", nullptr};

// How much of the noise is new at each step: 0 none, 1 as much as an ancestral sampler takes.
constexpr lh_option eta_option(const char* otherwise) {
  return option::real("eta", otherwise, option::within(0, 100), "New noise of a step; 0: none.");
}
inline constexpr lh_option s_noise_option =
    option::real("s_noise", "1", option::within(0, 100), "Factor of all noise that is added.");

// A step down from `from` to below `to`, and the noise that brings it up again (k-diffusion, get_ancestral_step):
// up = min(to, eta to sqrt(1 - (to / from)^2)), down^2 + up^2 = to^2. Sigmas of x0 + sigma noise.
struct Ancestral {
  double down, up;
};
Ancestral ancestral(double from, double to, double eta);

// The scalars of Stage::sum: of_<tensor> for each.
Names weights_of(const Names& tensors);
// Values of the steps before: <tensor>_1 is that of the last step, <tensor>_2 of the one before it.
Names history(const std::string& tensor, uint32_t depth);

// The graph of a stage, whose inputs can be asked for more than once.
class Stage {
 public:
  Stage(Graph& graph, const Dims& latents) : g(graph), latents_(latents) {}
  Value tensor(const std::string& name) { return input(name, latents_); }
  Value number(const std::string& name) { return input(name, {1}); }
  // The sum of tensors, each times its scalar of_<tensor>.
  Value sum(const Names& tensors);
  // A history moves on: called where the tensor has its value of this step.
  void keep(const std::string& name, uint32_t depth);

  Graph& g;

 private:
  Value input(const std::string& name, const Dims& dims);
  Dims latents_;
  std::map<std::string, Value> inputs_;
};

// One stage, x' a weighted sum, with a history of one of the tensors: what most multistep methods are.
class SumSampler : public lora_host::Sampler {
 public:
  // depth: of the history; 0: none.
  explicit SumSampler(Names tensors, const std::string& kept = "", uint32_t depth = 0);
  Names carried() const override { return history(kept_, depth_); }
  Names scalars() const override { return weights_of(tensors_); }
  Numbers scalar_values(const Step& step, uint32_t stage) const override;
  void build(Graph& g, uint32_t stage, const Dims& latents) const override;

 protected:
  virtual Numbers weights(const Step& step) const = 0;  // of each tensor, those of the history behind the others

 private:
  Names tensors_;
  std::string kept_;
  uint32_t depth_;
};

extern const lh_sampler euler, flow_euler, euler_cfg_pp, euler_ancestral, flow_euler_stochastic, heun, flow_heun, dpm_2;
extern const lh_sampler ddim, lms, lcm, lcm_boundary, res_multistep, res_multistep_ancestral, uni_pc;
extern const lh_sampler dpmpp_2m, dpmpp_2s_ancestral, dpmpp_2m_sde, dpmpp_3m_sde, dpmpp_sde;

}  // namespace samplers
