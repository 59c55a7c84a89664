// Adam and AdamW, as torch.optim has them, by one fused op where the averages are float32. They differ in where the
// weight decay goes: AdamW takes lr wd p off the weights (decoupled), Adam adds wd p to the gradient (L2).
//   decoupled: p -= lr wd p;  else g += wd p
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
#include "adam_step.h"

namespace optim {
namespace {

constexpr lh_option betas = option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1),
                                          "Decay of the averages of g and of its square.");
constexpr lh_option eps = option::real("eps", "1e-8", option::at_least(0), "Added to the root of the average square.");
constexpr lh_option adam_options[] = {
    betas, eps,
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight that is added to its gradient."),
    state_dtype_option, option::end};
constexpr lh_option adamw_options[] = {
    betas, eps,
    option::real("weight_decay", "0.01", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    state_dtype_option, option::end};

template <bool decoupled>
class Adam : public lora_host::Optimizer {
 public:
  explicit Adam(const Options& options)
      : betas_(options.reals("betas")),
        eps_(options.real("eps")),
        weight_decay_(options.real("weight_decay")),
        stored_(options) {}

  bool elementwise() const override { return true; }

  States states(const Parameter& p) const override {
    return {stored_.like(p, "m", LH_MEANING_AVERAGE), stored_.like(p, "v", LH_MEANING_SQUARE_AVERAGE)};
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const bool joins = !decoupled && weight_decay_ != 0;  // the gradient
    const Value d = joins ? g.add(g.g(), g.scale(g.p(), weight_decay_)) : g.g();
    if (stored_.narrow()) return build_narrow(g, p, d);
    const std::vector<Value> out = g.adamw_update(g.p(), d, g.state("m"), g.state("v"), g.lr(), g.step(), betas_[0],
                                                  betas_[1], eps_, decoupled ? weight_decay_ : 0);
    g.set("p", out[0]);
    g.set("m", out[1]);
    g.set("v", out[2]);
  }

 private:
  void build_narrow(UpdateGraph& g, const Parameter& p, Value d) const {
    const AdamStep next = adam_step(g, stored_, d, betas_, eps_);
    const Value kept = decoupled ? g.sub(g.p(), g.mul(g.p(), g.scale(g.lr(), weight_decay_))) : g.p();
    g.set("p", g.sub(kept, g.mul(next.step, g.lr())));
    stored_.write(g, p, {{"m", next.m}, {"v", next.v}});
  }

  std::vector<double> betas_;
  double eps_, weight_decay_;
  StoredStates stored_;
};

}  // namespace

constinit const lh_optimizer adam = lora_host::optimizer<Adam<false>>("adam", adam_options);
constinit const lh_optimizer adamw = lora_host::optimizer<Adam<true>>("adamw", adamw_options);

}  // namespace optim
