// Adafactor (Shazeer & Stern 2018), as transformers has it: a factored second moment, updates clipped by their RMS, and
// a step size of its own unless relative_step is off.
//   b2 = 1 - t^decay_rate;  u = g / sqrt(v) of g^2 + eps[0];  u /= max(1, RMS(u) / clip_threshold)
//   size = relative_step ? min(warmup_init ? 1e-6 t : 1e-2, 1 / sqrt(t)) : lr;  times max(eps[1], RMS(p)) where
//   scale_parameter;  with beta1: m = beta1 m + (1 - beta1) size u in place of size u;  p -= wd size p;  p -= size u
#include <optional>

#include "factored.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("eps", "[1e-30, 1e-3]", 2, option::at_least(0),
                  "Added to g^2; least RMS of a tensor that scale_parameter takes."),
    option::real("clip_threshold", "1", option::above(0), "RMS above which an update is scaled down."),
    option::real("decay_rate", "-0.8", option::within(-10, 0), "Exponent of t in the decay of the second moment."),
    option::nullable(option::real("beta1", nullptr, option::from_below(0, 1),
                                  "Decay of an average of the updates; null: no average.")),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times the step size, that goes."),
    option::flag("scale_parameter", "true", "Multiply the step size by the RMS of the tensor."),
    option::flag("relative_step", "true", "A step size by the number of the step; lr is not used."),
    option::flag("warmup_init", "false", "Begin with a small relative step."),
    option::end};

constexpr SecondMoment second{"v_row", "v_col", "v"};

class Adafactor : public lora_host::Optimizer {
 public:
  explicit Adafactor(const Options& options)
      : eps_(options.reals("eps")),
        clip_threshold_(options.real("clip_threshold")),
        decay_rate_(options.real("decay_rate")),
        beta1_(options.find_real("beta1")),
        weight_decay_(options.real("weight_decay")),
        scale_parameter_(options.flag("scale_parameter")),
        relative_step_(options.flag("relative_step")),
        warmup_init_(options.flag("warmup_init")) {
    if (warmup_init_ && !relative_step_)
      throw Failure(LH_E_SETTING, "adafactor: warmup_init needs relative_step: true");
  }

  States states(const Parameter& p) const override {
    States states;
    second.add_states(states, p);
    if (beta1_) states.push_back(State::like(p, "m"));
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const Value rest = g.exp(g.scale(g.log(g.step()), decay_rate_));  // t^decay_rate
    const Value root = second.root(g, p, g.shift(g.square(g.g()), eps_[0]), g.affine(rest, -1, 1), rest);
    const Value size = step_size(g, p);
    Value update = g.mul(clipped(g, p, g.mul(root, g.g()), clip_threshold_), size);
    if (beta1_) {
      update = g.average(g.state("m"), update, *beta1_);
      g.set("m", update);
    }
    Value next = g.p();
    if (weight_decay_ != 0) next = g.sub(next, g.mul(next, g.scale(size, weight_decay_)));
    g.set("p", g.sub(next, update));
  }

 private:
  Value step_size(UpdateGraph& g, const Parameter& p) const {
    Value size = g.lr();
    if (relative_step_) {
      const Value least = warmup_init_ ? g.scale(g.step(), 1e-6) : g.number(1e-2);
      size = g.min(least, g.rsqrt(g.step()));
    }
    if (!scale_parameter_) return size;
    return g.mul(g.max(rms(g, p, g.p()), g.number(eps_[1])), size);
  }

  std::vector<double> eps_;
  double clip_threshold_, decay_rate_;
  std::optional<double> beta1_;
  double weight_decay_;
  bool scale_parameter_, relative_step_, warmup_init_;
};

}  // namespace

constinit const lh_optimizer adafactor = lora_host::optimizer<Adafactor>("adafactor", options);

}  // namespace optim
