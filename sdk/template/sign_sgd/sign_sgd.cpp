// Sign SGD with momentum (Signum): every entry moves by the learning rate, in the direction of the averaged gradient.
//   m = momentum m + (1 - momentum) g;   p = p - lr (sign(m) + weight_decay p)
#include <lora_host/lora_host.hpp>

namespace {

using lora_host::Dims;
using lora_host::Graph;
using lora_host::Options;
using lora_host::Value;
namespace option = lora_host::option;

// What `optimizer_params` may hold; the host checks names, types and ranges.
constexpr lh_option options[] = {
    option::real("momentum", "0.9", option::from_below(0, 1), "Decay of the average of gradients."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    option::end};

class SignSgd : public lora_host::Optimizer {
 public:
  explicit SignSgd(const Options& options)
      : momentum_(options.real("momentum")), weight_decay_(options.real("weight_decay")) {}

  // One state tensor for each parameter: the host makes it, starts it at zero, saves and restores it.
  const char* state(uint32_t index) const override { return index == 0 ? "m" : nullptr; }

  void build_update(Graph& g, const Dims& parameter) const override {
    Value p = g.input("p", parameter, LH_F32), gradient = g.input("g", parameter, LH_F32);
    Value m = g.input("m", parameter, LH_F32), lr = g.input("lr", {1}, LH_F32);
    m = g.add(g.affine(m, momentum_), g.affine(gradient, 1 - momentum_));
    Value direction = g.add(g.sign(m), g.affine(p, weight_decay_));
    g.output("p", g.sub(p, g.mul(direction, lr)));
    g.output("m", m);
  }

 private:
  double momentum_, weight_decay_;
};

constexpr lh_optimizer sign_sgd = lora_host::optimizer<SignSgd>("sign_sgd", options);

}  // namespace

LORA_HOST_PLUGIN("sign_sgd", "0.1.0", "MIT", {LH_OPTIMIZER_FACTORY, &sign_sgd})
