// SGD with momentum, as torch.optim.SGD composes it.
//   d = g + wd p;  buf = d at the first step, else momentum buf + (1 - dampening) d
//   p -= lr (nesterov ? d + momentum buf : buf)
// Without momentum there is no state: p -= lr d.
#include "optimizers.h"

namespace optim {
namespace {

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

  bool elementwise() const override { return true; }

  States states(const Parameter& p) const override {
    if (momentum_ == 0) return {};
    return {State::like(p, "momentum_buffer")};
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter&) const override {
    Value d = g.g();
    if (weight_decay_ != 0) d = g.add(d, g.scale(g.p(), weight_decay_));
    if (momentum_ != 0) {
      const Value buffer = g.add(g.scale(g.state("momentum_buffer"), momentum_), damped(g, d));
      g.set("momentum_buffer", buffer);
      d = nesterov_ ? g.add(d, g.scale(buffer, momentum_)) : buffer;
    }
    g.set("p", g.sub(g.p(), g.mul(d, g.lr())));
  }

 private:
  // The gradient's share of the buffer; the buffer is 0 before the first step, which takes the gradient undamped.
  Value damped(UpdateGraph& g, Value d) const {
    if (dampening_ == 0) return d;
    const Value first = g.clamp(g.affine(g.step(), -1, 2), 0, 1);  // 1 at step 1, then 0
    return g.mul(d, g.where(first, g.number(1), g.number(1 - dampening_)));
  }

  double momentum_, dampening_, weight_decay_;
  bool nesterov_;
};

}  // namespace

constinit const lh_optimizer sgd = lora_host::optimizer<Sgd>("sgd", options, nullptr);

}  // namespace optim
