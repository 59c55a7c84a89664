// AdamW with decoupled weight decay and bias correction, one fused op; defaults of torch.optim.AdamW.
//   p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
#include "optimizers.h"

namespace optim {
namespace {

using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Options;
using lora_host::Value;

constexpr const char* option_names[] = {"betas", "eps", "weight_decay", nullptr};
constexpr const char* states[] = {"m", "v", nullptr};

class AdamW : public lora_host::Optimizer {
 public:
  explicit AdamW(const Options& options)
      : beta1_(options.real_at("betas", 0, 0.9)),
        beta2_(options.real_at("betas", 1, 0.999)),
        eps_(options.real("eps", 1e-8)),
        weight_decay_(options.real("weight_decay", 0.01)) {
    for (double beta : {beta1_, beta2_})
      if (!(beta >= 0 && beta < 1)) throw Failure(LH_E_SETTING, "adamw: betas must be in [0, 1)");
    if (!(eps_ >= 0) || !(weight_decay_ >= 0))
      throw Failure(LH_E_SETTING, "adamw: eps and weight_decay must not be negative");
  }

  const char* state(uint32_t index) const override { return index < 2 ? states[index] : nullptr; }

  void build_update(Graph& g, const Dims& parameter) const override {
    Value p = g.input("p", parameter, LH_F32), gradient = g.input("g", parameter, LH_F32);
    Value m = g.input("m", parameter, LH_F32), v = g.input("v", parameter, LH_F32);
    Value lr = g.input("lr", {1}, LH_F32), step = g.input("step", {1}, LH_F32);
    std::vector<Value> out = g.adamw_update(p, gradient, m, v, lr, step, beta1_, beta2_, eps_, weight_decay_);
    g.output("p", out[0]);
    g.output("m", out[1]);
    g.output("v", out[2]);
  }

 private:
  double beta1_, beta2_, eps_, weight_decay_;
};

}  // namespace

constinit const lh_optimizer adamw = lora_host::optimizer<AdamW>("adamw", option_names);

}  // namespace optim
