// Automagic, as ai-toolkit has it: every element has a learning rate of its own, which rises while its update keeps its
// sign and falls when it does not. The rates are kept as codes of 1/127 of a tensor's largest.
//   u = g / sqrt(v) of g^2 + eps[0];  u /= max(1, RMS(u) / clip_threshold);  rate += bump where u > 0 as it was before,
//   else -= bump;  rate in [min_lr, max_lr];  p -= rate (u + wd p).  The first rate is lr, 1e-6 for one above 1e-3.
#include "factored.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::real("min_lr", "1e-7", option::at_least(0), "Least rate of an element."),
    option::real("max_lr", "1e-3", option::above(0), "Largest rate of an element."),
    option::real("lr_bump", "1e-6", option::at_least(0), "By how much a rate rises or falls in a step."),
    option::reals("eps", "[1e-30, 1e-3]", 2, option::at_least(0), "Added to g^2; the second is not used."),
    option::real("clip_threshold", "1", option::above(0), "RMS above which an update is scaled down."),
    option::real("beta2", "0.999", option::from_below(0, 1), "Decay of the second moment."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times its rate, that goes."),
    option::end};

constexpr SecondMoment second{"v_row", "v_col", "v"};

class Automagic : public lora_host::Optimizer {
 public:
  explicit Automagic(const Options& options)
      : min_lr_(options.real("min_lr")),
        max_lr_(options.real("max_lr")),
        lr_bump_(options.real("lr_bump")),
        eps_(options.reals("eps")[0]),
        clip_threshold_(options.real("clip_threshold")),
        beta2_(options.real("beta2")),
        weight_decay_(options.real("weight_decay")) {
    if (min_lr_ > max_lr_) throw Failure(LH_E_SETTING, "automagic: min_lr is above max_lr");
  }

  States states(const Parameter& p) const override {
    State codes = State::like(p, "rate"), positive = State::like(p, "positive");
    codes.dtype = positive.dtype = LH_U8;
    State scale{"rate_scale", Dims(p.dims.size(), 1)};
    States states{codes, scale, positive};
    second.add_states(states, p);
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const Value root = second.root(g, p, g.shift(g.square(g.g()), eps_), beta2_);
    const Value raw = g.mul(root, g.g()), update = clipped(g, p, raw, clip_threshold_);
    // Clipping changes no sign, and rates that do not wait for it are found in the same pass as its RMS.
    const Value positive = g.cast(g.greater(raw, g.number(0)), LH_F32);
    const Value same = g.equal(positive, g.cast(g.state("positive"), LH_F32));
    g.set("positive", g.cast(positive, LH_U8));

    const Value start = g.where(g.greater(g.lr(), g.number(1e-3)), g.number(1e-6), g.lr());
    const Value kept = g.mul(g.cast(g.state("rate"), LH_F32), g.state("rate_scale"));
    Value rate = g.where(g.equal(g.step(), g.number(1)), start, kept);
    rate = g.add(rate, g.where(same, g.number(lr_bump_), g.number(-lr_bump_)));
    rate = g.clamp(rate, min_lr_, max_lr_);
    const Value scale = g.scale(g.amax(rate, all_axes(p)), 1.0 / 127);
    g.set("rate_scale", scale);
    g.set("rate", g.cast(g.round(g.div(rate, scale)), LH_U8));

    const Value step = weight_decay_ == 0 ? update : g.add(update, g.scale(g.p(), weight_decay_));
    g.set("p", g.sub(g.p(), g.mul(step, rate)));
  }

 private:
  double min_lr_, max_lr_, lr_bump_, eps_, clip_threshold_, beta2_, weight_decay_;
};

}  // namespace

constinit const lh_optimizer automagic = lora_host::optimizer<Automagic>("automagic", options);

}  // namespace optim
