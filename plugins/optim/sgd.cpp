// SGD with momentum, as torch.optim.SGD composes it.
//   d = g + wd p;  buf = d at the first step, else momentum buf + (1 - dampening) d
//   p -= lr (nesterov ? d + momentum buf : buf)
// Without momentum there is no state: p -= lr d.
#include "optimizers.h"

namespace optim {
namespace {

using lora_host::Dims;
using lora_host::Failure;
using lora_host::Graph;
using lora_host::Options;
using lora_host::Value;
namespace option = lora_host::option;

constexpr lh_option options[] = {
    option::real("momentum", "0", option::at_least(0), "Decay of the buffer of gradients; 0: no buffer."),
    option::real("dampening", "0", option::any, "Share of a gradient that does not go into the buffer."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight that is added to its gradient."),
    option::flag("nesterov", "false", "Look ahead by one step of the buffer."), option::end};

class Sgd : public lora_host::Optimizer {
 public:
  explicit Sgd(const Options& options)
      : momentum_(options.real("momentum")),
        dampening_(options.real("dampening")),
        weight_decay_(options.real("weight_decay")),
        nesterov_(options.flag("nesterov")) {
    if (nesterov_ && (momentum_ == 0 || dampening_ != 0))
      throw Failure(LH_E_SETTING, "sgd: nesterov needs a momentum above 0 and a dampening of 0");
  }

  const char* state(uint32_t index) const override {
    return momentum_ != 0 && index == 0 ? "momentum_buffer" : nullptr;
  }

  void build_update(Graph& g, const Dims& parameter) const override {
    Value p = g.input("p", parameter, LH_F32), d = g.input("g", parameter, LH_F32);
    Value lr = g.input("lr", {1}, LH_F32);
    if (weight_decay_ != 0) d = g.add(d, g.affine(p, weight_decay_));
    if (momentum_ != 0) {
      Value buffer = g.add(g.affine(g.input("momentum_buffer", parameter, LH_F32), momentum_), damped(g, d));
      g.output("momentum_buffer", buffer);
      d = nesterov_ ? g.add(d, g.affine(buffer, momentum_)) : buffer;
    }
    g.output("p", g.sub(p, g.mul(d, lr)));
  }

 private:
  // The gradient's share of the buffer; the buffer is 0 before the first step, which takes the gradient undamped.
  Value damped(Graph& g, Value d) const {
    if (dampening_ == 0) return d;
    Value step = g.input("step", {1}, LH_F32);
    Value first = g.clamp(g.affine(step, -1, 2), 0, 1);  // 1 at step 1, then 0
    Value one = g.constant({1}, std::vector<float>{1});
    Value rest = g.constant({1}, std::vector<float>{static_cast<float>(1 - dampening_)});
    return g.mul(d, g.where(first, one, rest));
  }

  double momentum_, dampening_, weight_decay_;
  bool nesterov_;
};

}  // namespace

constinit const lh_optimizer sgd = lora_host::optimizer<Sgd>("sgd", options);

}  // namespace optim
