// CAME (Luo et al. 2023), as came-pytorch has it: Adafactor's update, averaged, and scaled by how far it is from its
// average. No bias correction.
//   u = g / sqrt(v) of g^2 + eps[0];  u /= max(1, RMS(u) / clip_threshold);  m = b1 m + (1 - b1) u
//   two axes or more: step = m / sqrt(r), r factored as v is, of (u - m)^2 + eps[1];  else step = m
//   p -= lr (step + wd p)
#include "factored.h"
#include "stored.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("eps", "[1e-30, 1e-16]", 2, option::at_least(0), "Added to g^2, and to the squared distance."),
    option::real("clip_threshold", "1", option::above(0), "RMS above which an update is scaled down."),
    option::reals("betas", "[0.9, 0.999, 0.9999]", 3, option::from_below(0, 1),
                  "Decay of the average of updates, of the second moment and of the distance."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    state_dtype_option,
    option::end};

constexpr SecondMoment second{"v_row", "v_col", "v"}, distance{"r_row", "r_col", "r"};

class Came : public lora_host::Optimizer {
 public:
  explicit Came(const Options& options)
      : eps_(options.reals("eps")),
        betas_(options.reals("betas")),
        clip_threshold_(options.real("clip_threshold")),
        weight_decay_(options.real("weight_decay")),
        stored_(options) {}

  States states(const Parameter& p) const override {
    States states{stored_.like(p, "m")};
    second.add_states(states, p);
    if (SecondMoment::factored(p)) distance.add_states(states, p);
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const Value root = second.root(g, p, g.shift(g.square(g.g()), eps_[0]), betas_[1]);
    const Value update = clipped(g, p, g.mul(root, g.g()), clip_threshold_);
    const Value m = g.average(stored_.read(g, "m"), update, betas_[0]);
    stored_.write(g, p, {{"m", m}});
    Value step = m;
    if (SecondMoment::factored(p)) {
      const Value apart = g.shift(g.square(g.sub(update, m)), eps_[1]);
      step = g.mul(distance.root(g, p, apart, betas_[2]), m);
    }
    if (weight_decay_ != 0) step = g.add(step, g.scale(g.p(), weight_decay_));
    g.set("p", g.sub(g.p(), g.mul(step, g.lr())));
  }

 private:
  std::vector<double> eps_, betas_;
  double clip_threshold_, weight_decay_;
  StoredStates stored_;
};

}  // namespace

constinit const lh_optimizer came = lora_host::optimizer<Came>("came", options);

}  // namespace optim
