// Lion (Chen et al. 2023), as lion-pytorch has it: the sign of an average, with decoupled decay.
//   p -= lr (sign(b1 m + (1 - b1) g) + wd p);  m = b2 m + (1 - b2) g
#include "stored.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.99]", 2, option::from_below(0, 1),
                  "Weight of the average against g in a step, and its decay."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    state_dtype_option, option::end};

class Lion : public lora_host::Optimizer {
 public:
  explicit Lion(const Options& options)
      : betas_(options.reals("betas")), weight_decay_(options.real("weight_decay")), stored_(options) {}

  bool elementwise() const override { return true; }

  States states(const Parameter& p) const override { return {stored_.like(p, "m", LH_MEANING_AVERAGE)}; }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const Value m = stored_.read(g, "m");
    Value direction = g.sign(g.average(m, g.g(), betas_[0]));
    if (weight_decay_ != 0) direction = g.add(direction, g.scale(g.p(), weight_decay_));
    stored_.write(g, p, {{"m", g.average(m, g.g(), betas_[1])}});
    g.set("p", g.sub(g.p(), g.mul(direction, g.lr())));
  }

 private:
  std::vector<double> betas_;
  double weight_decay_;
  StoredStates stored_;
};

}  // namespace

constinit const lh_optimizer lion = lora_host::optimizer<Lion>("lion", options);

}  // namespace optim
