// Prodigy (Mishchenko & Defazio 2023), as prodigyopt has it: Adam whose learning rate is estimated as d from how far
// the weights have come. lr is a factor of it, usually 1. All tensors of a group have one d.
//   dlr = d lr (times sqrt(1 - b2^t) / (1 - b1^t) with use_bias_correction)
//   N = b3 N + (d / d0) dlr <g, p0 - p>;  m = b1 m + (1 - b1) d g;  v = b2 v + (1 - b2) d^2 g^2
//   s = b3 s + (d / d0) dlr g (with safeguard_warmup d in place of dlr);  d_hat = d_coef N / |s|_1
//   d = d_hat where it is d0 and less;  d_max = max(d_max, d_hat);  d = min(d_max, d growth_rate)
//   p -= dlr (m / (sqrt(v) + d eps) + wd p), with the new d in front of eps and the old one in dlr
#include <cmath>
#include <optional>

#include "stored.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1),
                  "Decay of the averages of g and of its square."),
    option::nullable(option::real("beta3", nullptr, option::from_below(0, 1),
                                  "Decay of what d is estimated from; null: the root of the second beta.")),
    option::real("eps", "1e-8", option::at_least(0), "Added to the root, times d."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight that goes at each step."),
    option::flag("decouple", "true", "Decay times d lr, as AdamW; false: added to the gradient."),
    option::flag("use_bias_correction", "false", "Adam's correction of the first steps."),
    option::flag("safeguard_warmup", "false", "Leave lr out of the denominator of d, for runs with warm-up."),
    option::real("d0", "1e-6", option::above(0), "First estimate of d."),
    option::real("d_coef", "1", option::above(0), "Factor of the estimate."),
    option::nullable(
        option::real("growth_rate", nullptr, option::above(1), "Most that d may grow by in a step; null: any.")),
    state_dtype_option,
    option::end};

class Prodigy : public lora_host::Optimizer {
 public:
  explicit Prodigy(const Options& options)
      : betas_(options.reals("betas")),
        beta3_(options.find_real("beta3").value_or(std::sqrt(betas_[1]))),
        eps_(options.real("eps")),
        weight_decay_(options.real("weight_decay")),
        decouple_(options.flag("decouple")),
        bias_correction_(options.flag("use_bias_correction")),
        safeguard_(options.flag("safeguard_warmup")),
        d0_(options.real("d0")),
        d_coef_(options.real("d_coef")),
        growth_rate_(options.find_real("growth_rate")),
        stored_(options) {}

  bool elementwise() const override { return true; }
  uint32_t passes() const override { return 3; }

  States states(const Parameter& p) const override {
    return {State::of_group("d", d0_), State::of_group("d_max", d0_), State::of_group("d_numerator"),
            stored_.like(p, "m"),      stored_.like(p, "v"),          stored_.like(p, "s"),
            State::copy_of(p, "p0")};
  }

  // 0: nothing but the numbers of the step; 1: averages and what d is estimated from; 2: the weights.
  void build_pass(UpdateGraph& g, uint32_t pass, const Parameter& p) const override {
    if (pass == 1) gather(g, p);
    if (pass == 2) move(g);
  }

  void build_between(UpdateGraph& g, uint32_t pass) const override {
    if (pass == 0) {
      Value dlr = g.mul(g.state("d"), g.lr());
      if (bias_correction_)
        dlr = g.mul(dlr, g.div(g.sqrt(g.one_minus_power(betas_[1], g.step())), g.one_minus_power(betas_[0], g.step())));
      const Value scale = g.scale(g.state("d"), 1 / d0_);
      g.set("dlr", dlr);
      g.set("numerator_factor", g.mul(scale, dlr));
      g.set("s_factor", safeguard_ ? g.mul(scale, g.state("d")) : g.mul(scale, dlr));
    }
    if (pass == 1) estimate(g);
  }

 private:
  void gather(UpdateGraph& g, const Parameter& p) const {
    Value d = g.g();
    if (weight_decay_ != 0 && !decouple_) d = g.add(d, g.scale(g.p(), weight_decay_));
    const Value scaled = g.mul(d, g.state("d"));
    const Value s = g.add(g.scale(stored_.read(g, "s"), beta3_), g.mul(d, g.scalar("s_factor")));
    stored_.write(g, p,
                  {{"m", g.average(stored_.read(g, "m"), scaled, betas_[0])},
                   {"v", g.average(stored_.read(g, "v"), g.square(scaled), betas_[1])},
                   {"s", s}});
    g.reduce_sum("distance", g.mul(d, g.sub(g.state("p0"), g.p())));
    g.reduce_sum("s", g.abs(s));
  }

  void estimate(UpdateGraph& g) const {
    const Value d = g.state("d"), none = g.number(0), length = g.reduced_sum("s");
    const Value numerator =
        g.add(g.scale(g.state("d_numerator"), beta3_), g.mul(g.reduced_sum("distance"), g.scalar("numerator_factor")));
    const Value learns = g.mul(g.cast(g.greater(length, none), LH_F32), g.cast(g.greater(g.lr(), none), LH_F32));
    const Value d_hat = g.where(learns, g.div(g.scale(numerator, d_coef_), length), d);
    const Value first = g.where(g.equal(d, g.number(d0_)), g.max(d, d_hat), d);
    const Value d_max = g.max(g.state("d_max"), d_hat);
    const Value next = growth_rate_ ? g.min(d_max, g.scale(first, *growth_rate_)) : d_max;
    g.set("d_numerator", numerator);
    g.set("d_max", g.where(learns, d_max, g.state("d_max")));
    g.set("d", g.where(learns, next, d));
    g.set("rate", g.where(g.greater(length, none), g.scalar("dlr"), none));
  }

  void move(UpdateGraph& g) const {
    const Value root = g.add(g.sqrt(stored_.read(g, "v")), g.scale(g.state("d"), eps_));
    Value step = g.div(stored_.read(g, "m"), root);
    if (weight_decay_ != 0 && decouple_) step = g.add(step, g.scale(g.p(), weight_decay_));
    g.set("p", g.sub(g.p(), g.mul(step, g.scalar("rate"))));
  }

  std::vector<double> betas_;
  double beta3_, eps_, weight_decay_;
  bool decouple_, bias_correction_, safeguard_;
  double d0_, d_coef_;
  std::optional<double> growth_rate_;
  StoredStates stored_;
};

}  // namespace

constinit const lh_optimizer prodigy = lora_host::optimizer<Prodigy>("prodigy", options, nullptr, 1, 1);

}  // namespace optim
