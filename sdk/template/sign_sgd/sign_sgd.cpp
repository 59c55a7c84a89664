// Sign SGD with momentum (Signum): every entry moves by the learning rate, in the direction of the averaged gradient.
//   m = momentum m + (1 - momentum) g;   p = p - lr (sign(m) + weight_decay p)
#include <lora_host/lora_host.hpp>

namespace {

using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Options;
using lora_host::Value;

// What `optimizer_params` may hold; the host refuses any other name.
constexpr const char* option_names[] = {"momentum", "weight_decay", nullptr};

class SignSgd : public lora_host::Optimizer {
 public:
  explicit SignSgd(const Options& options)
      : momentum_(options.real("momentum", 0.9)), weight_decay_(options.real("weight_decay", 0)) {
    if (!(momentum_ >= 0 && momentum_ < 1)) throw Failure(LH_E_SETTING, "sign_sgd: momentum must be in [0, 1)");
  }

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

constexpr lh_optimizer sign_sgd = lora_host::optimizer<SignSgd>("sign_sgd", option_names);

}  // namespace

LORA_HOST_PLUGIN("sign_sgd", "0.1.0", "MIT", {LH_OPTIMIZER_FACTORY, &sign_sgd})
