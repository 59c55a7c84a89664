// Sign SGD with momentum (Signum): every entry moves by the learning rate, in the direction of the averaged gradient.
//   m = momentum m + (1 - momentum) g;   p = p - lr (sign(m) + weight_decay p)
#include <lora_host/lora_host.hpp>

namespace {

using lora_host::Parameter;
using lora_host::State;
using lora_host::States;
using lora_host::UpdateGraph;
using lora_host::Value;
namespace option = lora_host::option;

// What `optimizer_params` may hold; the host checks names, types and ranges.
constexpr lh_option options[] = {
    option::real("momentum", "0.9", option::from_below(0, 1), "Decay of the average of gradients."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    option::end};

class SignSgd : public lora_host::Optimizer {
 public:
  explicit SignSgd(const lora_host::Options& options)
      : momentum_(options.real("momentum")), weight_decay_(options.real("weight_decay")) {}

  // No element of a tensor meets another: the host may give all tensors as one.
  bool elementwise() const override { return true; }

  // One state for each parameter: the host makes it, starts it at zero, saves and restores it.
  States states(const Parameter& p) const override { return {State::like(p, "m", LH_MEANING_AVERAGE)}; }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter&) const override {
    const Value m = g.average(g.state("m"), g.g(), momentum_);
    const Value direction = g.add(g.sign(m), g.scale(g.p(), weight_decay_));
    g.set("p", g.sub(g.p(), g.mul(direction, g.lr())));
    g.set("m", m);
  }

 private:
  double momentum_, weight_decay_;
};

constexpr lh_optimizer sign_sgd = lora_host::optimizer<SignSgd>("sign_sgd", options);

}  // namespace

LORA_HOST_PLUGIN("sign_sgd", "0.1.0", "MIT", {LH_OPTIMIZER_FACTORY, &sign_sgd})
