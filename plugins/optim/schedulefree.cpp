// Schedule-free AdamW and RAdam (Defazio et al. 2024), as schedulefree has them. p is y, where gradients are taken; the
// weights that are saved are x.
//   rate = lr times the warm-up (adamw) or the rectification rect (radam);  r_max = max(r_max, rate)
//   weight = t^r r_max^weight_lr_power;  c = weight / sum of weights
//   v = b2 v + (1 - b2) g^2;  u = g / (sqrt(v / (1 - b2^t)) + eps) + wd y   (radam with rho <= 4: u = g + wd y)
//   y += c (z - y);  y += rate (b1 (1 - c) - 1) u;  z -= rate u;  x = y + (1 - 1 / b1) (z - y)
#include "radam.h"

namespace optim {
namespace {

#define SCHEDULEFREE_OPTIONS                                                                                         \
  option::reals("betas", "[0.9, 0.999]", 2, option::between(0, 1), "Place of y between x and z; decay of g^2."),     \
      option::real("eps", "1e-8", option::at_least(0), "Added to the root of the average square."),                  \
      option::real("weight_decay", "0", option::at_least(0), "Share of y, times the rate, that goes at each step."), \
      option::real("r", "0", option::within(-10, 10), "Weight of a step in the average: its number to this power."), \
      option::real("weight_lr_power", "2", option::within(0, 10), "Weight of a step: its largest rate to this power.")

constexpr lh_option adamw_options[] = {
    SCHEDULEFREE_OPTIONS,
    option::integer("warmup_steps", "0", option::within(0, 1e9), "Steps in which the rate rises."), option::end};
constexpr lh_option radam_options[] = {
    SCHEDULEFREE_OPTIONS,
    option::flag("silent_sgd_phase", "true", "No step while the rectification is not defined; false: plain ones."),
    option::end};
constexpr const char* adamw_names[] = {"adamw_schedulefree", "AdamWScheduleFree", nullptr};
constexpr const char* radam_names[] = {"radam_schedulefree", "RAdamScheduleFree", nullptr};

class ScheduleFree : public lora_host::Optimizer {
 public:
  explicit ScheduleFree(const Options& options)
      : betas_(options.reals("betas")),
        eps_(options.real("eps")),
        weight_decay_(options.real("weight_decay")),
        r_(options.real("r")),
        power_(options.real("weight_lr_power")) {}

  bool elementwise() const override { return true; }
  uint32_t passes() const override { return 2; }

  States states(const Parameter& p) const override {
    return {State::of_group("rate_max"), State::of_group("weight_sum"), State::like(p, "v", LH_MEANING_SQUARE_AVERAGE),
            State::copy_of(p, "z")};
  }

  // 0: nothing but the numbers of the step.
  void build_pass(UpdateGraph& g, uint32_t pass, const Parameter&) const override {
    if (pass == 0) return;
    const Value v = g.average(g.state("v"), g.square(g.g()), betas_[1]);
    g.set("v", v);
    Value u = direction(g, g.div(g.g(), g.shift(g.sqrt(g.div(v, g.scalar("correction"))), eps_)));
    if (weight_decay_ != 0) u = g.add(u, g.scale(g.p(), weight_decay_));
    const Value y = g.add(g.p(), g.mul(g.sub(g.state("z"), g.p()), g.scalar("c")));
    g.set("p", g.add(y, g.mul(u, g.scalar("y_rate"))));
    g.set("z", g.sub(g.state("z"), g.mul(u, g.scalar("rate"))));
  }

  void build_between(UpdateGraph& g, uint32_t pass) const override {
    if (pass != 0) return;
    const Value correction = g.one_minus_power(betas_[1], g.step()), rate = rate_of(g);
    const Value most = g.max(g.state("rate_max"), rate), none = g.number(0);
    Value weight = power_ == 2 ? g.square(most) : g.exp(g.scale(g.log(most), power_));
    if (r_ != 0) weight = g.mul(weight, g.exp(g.scale(g.log(g.step()), r_)));
    const Value sum = g.add(g.state("weight_sum"), weight);
    const Value c = g.where(g.greater(sum, none), g.div(weight, sum), none);
    g.set("rate_max", most);
    g.set("weight_sum", sum);
    g.set("correction", correction);
    g.set("c", c);
    g.set("rate", rate);
    g.set("y_rate", g.mul(rate, g.affine(c, -betas_[0], betas_[0] - 1)));  // rate (b1 (1 - c) - 1)
  }

  void build_evaluation(UpdateGraph& g, const Parameter&) const override {
    g.set("p", g.add(g.p(), g.scale(g.sub(g.state("z"), g.p()), 1 - 1 / betas_[0])));
  }

 protected:
  virtual Value rate_of(UpdateGraph& g) const = 0;                              // [1], in the first `between`
  virtual Value direction(UpdateGraph&, Value scaled) const { return scaled; }  // g / sqrt(v), or what stands for it
  double beta2() const { return betas_[1]; }

 private:
  std::vector<double> betas_;
  double eps_, weight_decay_, r_, power_;
};

class ScheduleFreeAdamW : public ScheduleFree {
 public:
  explicit ScheduleFreeAdamW(const Options& options)
      : ScheduleFree(options), warmup_(static_cast<double>(options.integer("warmup_steps"))) {}

 protected:
  Value rate_of(UpdateGraph& g) const override {
    if (warmup_ == 0) return g.lr();
    return g.mul(g.lr(), g.min(g.scale(g.step(), 1 / warmup_), g.number(1)));
  }

 private:
  double warmup_;
};

class ScheduleFreeRAdam : public ScheduleFree {
 public:
  explicit ScheduleFreeRAdam(const Options& options)
      : ScheduleFree(options), silent_(options.flag("silent_sgd_phase")) {}

 protected:
  Value rate_of(UpdateGraph& g) const override {
    const Rectification r(g, beta2());
    g.set("defined", g.cast(r.defined, LH_F32));
    return g.mul(g.lr(), g.where(r.defined, r.rect, g.number(silent_ ? 0 : 1)));
  }
  Value direction(UpdateGraph& g, Value scaled) const override { return g.where(g.scalar("defined"), scaled, g.g()); }

 private:
  bool silent_;
};

}  // namespace

constinit const lh_optimizer schedulefree_adamw =
    lora_host::optimizer<ScheduleFreeAdamW>("schedulefree_adamw", adamw_options, adamw_names);
constinit const lh_optimizer schedulefree_radam =
    lora_host::optimizer<ScheduleFreeRAdam>("schedulefree_radam", radam_options, radam_names);

}  // namespace optim
