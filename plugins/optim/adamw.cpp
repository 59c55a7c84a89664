// AdamW with decoupled weight decay and bias correction, one fused op; defaults of torch.optim.AdamW.
//   p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
#include "optimizers.h"

namespace optim {
namespace {

using lora_host::Dims;
using lora_host::Graph;
using lora_host::Options;
using lora_host::Value;
namespace option = lora_host::option;

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1),
                  "Decay of the averages of g and of its square."),
    option::real("eps", "1e-8", option::at_least(0), "Added to the root of the average square."),
    option::real("weight_decay", "0.01", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    option::end};
constexpr const char* states[] = {"m", "v", nullptr};

class AdamW : public lora_host::Optimizer {
 public:
  explicit AdamW(const Options& options)
      : betas_(options.reals("betas")), eps_(options.real("eps")), weight_decay_(options.real("weight_decay")) {}

  const char* state(uint32_t index) const override { return index < 2 ? states[index] : nullptr; }

  void build_update(Graph& g, const Dims& parameter) const override {
    Value p = g.input("p", parameter, LH_F32), gradient = g.input("g", parameter, LH_F32);
    Value m = g.input("m", parameter, LH_F32), v = g.input("v", parameter, LH_F32);
    Value lr = g.input("lr", {1}, LH_F32), step = g.input("step", {1}, LH_F32);
    std::vector<Value> out = g.adamw_update(p, gradient, m, v, lr, step, betas_[0], betas_[1], eps_, weight_decay_);
    g.output("p", out[0]);
    g.output("m", out[1]);
    g.output("v", out[2]);
  }

 private:
  std::vector<double> betas_;
  double eps_, weight_decay_;
};

}  // namespace

constinit const lh_optimizer adamw = lora_host::optimizer<AdamW>("adamw", options);

}  // namespace optim
