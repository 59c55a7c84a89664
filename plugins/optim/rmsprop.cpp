// RMSprop, as torch.optim.RMSprop: no bias correction, decay added to the gradient.
//   g += wd p;  v = a v + (1 - a) g^2;  centered: mean = a mean + (1 - a) g, v - mean^2 in place of v
//   u = g / (sqrt(v) + eps);  momentum: buf = momentum buf + u, p -= lr buf;  else p -= lr u
#include "optimizers.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::real("alpha", "0.99", option::from_below(0, 1), "Decay of the average of g^2."),
    option::real("eps", "1e-8", option::at_least(0), "Added to the root."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight that is added to its gradient."),
    option::real("momentum", "0", option::at_least(0), "Decay of the buffer of steps; 0: no buffer."),
    option::flag("centered", "false", "Take the variance of g in place of the average of its square."),
    option::end};

class RmsProp : public lora_host::Optimizer {
 public:
  explicit RmsProp(const Options& options)
      : alpha_(options.real("alpha")),
        eps_(options.real("eps")),
        weight_decay_(options.real("weight_decay")),
        momentum_(options.real("momentum")),
        centered_(options.flag("centered")) {}

  bool elementwise() const override { return true; }

  States states(const Parameter& p) const override {
    States states{State::like(p, "v", LH_MEANING_SQUARE_AVERAGE)};
    if (centered_) states.push_back(State::like(p, "mean", LH_MEANING_AVERAGE));
    if (momentum_ != 0) states.push_back(State::like(p, "momentum_buffer"));
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter&) const override {
    const Value d = weight_decay_ == 0 ? g.g() : g.add(g.g(), g.scale(g.p(), weight_decay_));
    Value v = g.average(g.state("v"), g.square(d), alpha_);
    g.set("v", v);
    if (centered_) {
      const Value mean = g.average(g.state("mean"), d, alpha_);
      g.set("mean", mean);
      v = g.sub(v, g.square(mean));
    }
    Value step = g.div(d, g.shift(g.sqrt(v), eps_));
    if (momentum_ != 0) {
      step = g.add(g.scale(g.state("momentum_buffer"), momentum_), step);
      g.set("momentum_buffer", step);
    }
    g.set("p", g.sub(g.p(), g.mul(step, g.lr())));
  }

 private:
  double alpha_, eps_, weight_decay_, momentum_;
  bool centered_;
};

}  // namespace

constinit const lh_optimizer rmsprop = lora_host::optimizer<RmsProp>("rmsprop", options);

}  // namespace optim
