// A sampler with an option and a history, and a schedule with an option.
//
// ab2, the two-step method of Adams and Bashforth for steps of any length, h = sigma' - sigma, h_1 that of the step
// before:
//   x' = x + h (d + weight h / (2 h_1) (d - d_1)),   d = dx/dsigma; weight 0 is Euler's method
// power: times (1 - i / steps)^exponent of a flow model, shifted as the model's are, and sigmas of other models that
// fall by the same law from the largest to the smallest.
#include <lora_host/lora_host.hpp>

namespace {

using lora_host::Dims;
using lora_host::Facts;
using lora_host::Graph;
using lora_host::Levels;
using lora_host::Options;
using lora_host::Step;
using lora_host::Value;
namespace option = lora_host::option;

constexpr const char* all_models[] = {"flow", "epsilon", "v_prediction", nullptr};

// What `sample.sampler_params` may hold: the host checks names, types and ranges, and gives the defaults.
constexpr lh_option sampler_options[] = {
    option::real("weight", "1", option::within(0, 1), "Share of the second order term; 0: Euler's method."),
    option::end};

class Ab2 : public lora_host::Sampler {
 public:
  explicit Ab2(const Options& options) : weight_(options.real("weight")) {}

  // A tensor that the host keeps from step to step; zero at first.
  std::vector<std::string> carried() const override { return {"derivative_before"}; }
  std::vector<std::string> scalars() const override { return {"of_derivative", "of_derivative_before"}; }

  // In float64, for each step: the host calls it before the run.
  std::vector<double> scalar_values(const Step& step, uint32_t /*stage*/) const override {
    const double h = step.next().sigma() - step.sigma();
    if (step.first()) return {h, 0};
    const double second = weight_ * h * h / (2 * (step.sigma() - step.previous().sigma()));
    return {h + second, -second};
  }
  void build(Graph& g, uint32_t /*stage*/, const Dims& latents) const override {
    Value derivative = g.input("derivative", latents, LH_F32), before = g.input("derivative_before", latents, LH_F32);
    Value now = g.mul(derivative, g.input("of_derivative", {1}, LH_F32));
    Value then = g.mul(before, g.input("of_derivative_before", {1}, LH_F32));
    g.output("x", g.add(g.input("x", latents, LH_F32), g.add(now, then)));
    g.output("derivative_before", derivative);
  }

 private:
  double weight_;
};

constexpr lh_option schedule_options[] = {
    option::real("exponent", "1", option::within(0.1, 10), "Above 1: more steps where there is little noise."),
    option::end};

class Power : public lora_host::Schedule {
 public:
  explicit Power(const Options& options) : exponent_(options.real("exponent")) {}

  Levels levels(const Facts& facts) const override {
    Levels levels;
    for (uint32_t i = 0; i < facts.steps; ++i) {
      const double share = std::pow(1 - static_cast<double>(i) / facts.steps, exponent_);
      levels.sigma.push_back(facts.flow() ? facts.shifted(share)
                                          : facts.sigma_min + share * (facts.sigma_max - facts.sigma_min));
    }
    levels.sigma.push_back(0);  // the end
    return levels;
  }

 private:
  double exponent_;
};

constexpr lh_sampler ab2 = lora_host::sampler<Ab2>(
    {.id = "ab2", .objectives = all_models, .space = LH_SPACE_SIGMA, .options = sampler_options});
constexpr lh_schedule power =
    lora_host::schedule<Power>({.id = "power", .objectives = all_models, .options = schedule_options});

}  // namespace

LORA_HOST_PLUGIN("sampling", "0.1.0", "MIT", {LH_SAMPLER_FACTORY, &ab2}, {LH_SCHEDULE_FACTORY, &power})
