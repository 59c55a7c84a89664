// Adam with weight decay added to the gradient (L2), as torch.optim.Adam: AdamW's fused op on g + wd p where the
// averages are float32.
//   g += wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
#include "adam_step.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1),
                  "Decay of the averages of g and of its square."),
    option::real("eps", "1e-8", option::at_least(0), "Added to the root of the average square."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight that is added to its gradient."),
    state_dtype_option, option::end};

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
    const Value d = weight_decay_ == 0 ? g.g() : g.add(g.g(), g.scale(g.p(), weight_decay_));
    if (stored_.narrow()) {
      const AdamStep next = adam_step(g, stored_, d, betas_, eps_);
      g.set("p", g.sub(g.p(), g.mul(next.step, g.lr())));
      return stored_.write(g, p, {{"m", next.m}, {"v", next.v}});
    }
    const std::vector<Value> out =
        g.adamw_update(g.p(), d, g.state("m"), g.state("v"), g.lr(), g.step(), betas_[0], betas_[1], eps_, 0);
    g.set("p", out[0]);
    g.set("m", out[1]);
    g.set("v", out[2]);
  }

 private:
  std::vector<double> betas_;
  double eps_, weight_decay_;
  StoredStates stored_;
};

}  // namespace

constinit const lh_optimizer adam = lora_host::optimizer<Adam>("adam", options);

}  // namespace optim
