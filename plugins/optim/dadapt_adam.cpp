// D-Adapted Adam (Defazio & Mishchenko 2023), as dadaptation has it: Adam whose learning rate is estimated as d. lr is
// a factor of it, usually 1. All tensors of a group have one d, and a new one acts from the next step on.
//   dlr = d lr (times sqrt(1 - b2^t) / (1 - b1^t) with use_bias_correction);  sb = sqrt(b2)
//   a = dlr <g, s / (sqrt(v) + eps)> with s and v of the last step
//   m = b1 m + (1 - b1) dlr g;  v = b2 v + (1 - b2) g^2;  s = sb s + (1 - sb) dlr g
//   N = sb N + (1 - sb) a;  d = max(d, min(N / ((1 - sb) |s|_1), d growth_rate))
//   p -= m / (sqrt(v) + eps) + wd dlr p
#include <cmath>
#include <optional>

#include "optimizers.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1),
                  "Decay of the averages of g and of its square."),
    option::real("eps", "1e-8", option::at_least(0), "Added to the root."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight that goes at each step."),
    option::flag("decouple", "false", "Decay times d lr, as AdamW; false: added to the gradient."),
    option::flag("use_bias_correction", "false", "Adam's correction of the first steps."),
    option::real("d0", "1e-6", option::above(0), "First estimate of d."),
    option::nullable(
        option::real("growth_rate", nullptr, option::above(1), "Most that d may grow by in a step; null: any.")),
    option::end};
constexpr const char* names[] = {"dadaptation", "dadaptadam", "DAdaptAdam", nullptr};

class DAdaptAdam : public lora_host::Optimizer {
 public:
  explicit DAdaptAdam(const Options& options)
      : betas_(options.reals("betas")),
        eps_(options.real("eps")),
        weight_decay_(options.real("weight_decay")),
        decouple_(options.flag("decouple")),
        bias_correction_(options.flag("use_bias_correction")),
        d0_(options.real("d0")),
        growth_rate_(options.find_real("growth_rate")),
        root_beta_(std::sqrt(betas_[1])) {}

  bool elementwise() const override { return true; }
  uint32_t passes() const override { return 2; }

  States states(const Parameter& p) const override {
    return {State::of_group("d", d0_), State::of_group("d_numerator"), State::like(p, "m"),
            State::like(p, "v", LH_MEANING_SQUARE_AVERAGE), State::like(p, "s")};
  }

  // 0: nothing but the rate of the step; 1: everything else.
  void build_pass(UpdateGraph& g, uint32_t pass, const Parameter&) const override {
    if (pass == 0) return;
    const Value rate = g.scalar("rate");
    Value d = g.g();
    if (weight_decay_ != 0 && !decouple_) d = g.add(d, g.scale(g.p(), weight_decay_));
    const Value scaled = g.mul(d, rate);
    g.reduce_sum("distance", g.mul(scaled, g.div(g.state("s"), g.shift(g.sqrt(g.state("v")), eps_))));
    const Value m = g.average(g.state("m"), scaled, betas_[0]), v = g.average(g.state("v"), g.square(d), betas_[1]);
    const Value s = g.average(g.state("s"), scaled, root_beta_);
    g.reduce_sum("s", g.abs(s));
    g.set("m", m);
    g.set("v", v);
    g.set("s", s);
    Value next = g.p();
    if (weight_decay_ != 0 && decouple_) next = g.sub(next, g.mul(next, g.scale(rate, weight_decay_)));
    g.set("p", g.sub(next, g.div(m, g.shift(g.sqrt(v), eps_))));
  }

  void build_between(UpdateGraph& g, uint32_t pass) const override {
    const Value d = g.state("d"), none = g.number(0);
    if (pass == 0) {
      Value rate = g.mul(d, g.lr());
      if (bias_correction_)
        rate =
            g.mul(rate, g.div(g.sqrt(g.one_minus_power(betas_[1], g.step())), g.one_minus_power(betas_[0], g.step())));
      g.set("rate", rate);
      return;
    }
    const Value length = g.reduced_sum("s");
    const Value numerator = g.average(g.state("d_numerator"), g.reduced_sum("distance"), root_beta_);
    const Value learns = g.mul(g.cast(g.greater(length, none), LH_F32), g.cast(g.greater(g.lr(), none), LH_F32));
    Value d_hat = g.where(learns, g.div(numerator, g.scale(length, 1 - root_beta_)), d);
    if (growth_rate_) d_hat = g.min(d_hat, g.scale(d, *growth_rate_));
    g.set("d_numerator", numerator);
    g.set("d", g.max(d, d_hat));
  }

 private:
  std::vector<double> betas_;
  double eps_, weight_decay_;
  bool decouple_, bias_correction_;
  double d0_;
  std::optional<double> growth_rate_;
  double root_beta_;
};

}  // namespace

constinit const lh_optimizer dadapt_adam = lora_host::optimizer<DAdaptAdam>("dadapt_adam", options, names, 1, 1);

}  // namespace optim
