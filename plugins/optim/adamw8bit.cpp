// AdamW whose averages are kept in 8 bits, as bitsandbytes has it: both are read, used and rounded again in every step.
//   p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps);  then m and v are rounded
#include "blockwise.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1),
                  "Decay of the averages of g and of its square."),
    option::real("eps", "1e-8", option::at_least(0), "Added to the root of the average square."),
    option::real("weight_decay", "0.01", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    option::integer("min_8bit_size", "4096", option::within(0, 1e9), min_8bit_size_help), option::end};
constexpr const char* names[] = {"adam8bit", nullptr};

class AdamW8bit : public lora_host::Optimizer {
 public:
  explicit AdamW8bit(const Options& options)
      : betas_(options.reals("betas")),
        eps_(options.real("eps")),
        weight_decay_(options.real("weight_decay")),
        m_("m", "m.absmax", true, options.integer("min_8bit_size")),
        v_("v", "v.absmax", false, options.integer("min_8bit_size")) {}

  States states(const Parameter& p) const override {
    States states;
    m_.add_to(states, p, LH_MEANING_AVERAGE);
    v_.add_to(states, p, LH_MEANING_SQUARE_AVERAGE);
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const Value m = g.average(m_.read(g, p), g.g(), betas_[0]);
    const Value v = g.average(v_.read(g, p), g.square(g.g()), betas_[1]);
    const Value root = g.shift(g.div(g.sqrt(v), g.sqrt(g.one_minus_power(betas_[1], g.step()))), eps_);
    const Value rate = g.div(g.lr(), g.one_minus_power(betas_[0], g.step()));
    const Value kept = g.sub(g.p(), g.mul(g.p(), g.scale(g.lr(), weight_decay_)));
    g.set("p", g.sub(kept, g.mul(g.div(m, root), rate)));
    m_.write(g, p, m);
    v_.write(g, p, v);
  }

 private:
  std::vector<double> betas_;
  double eps_, weight_decay_;
  BlockwiseState m_, v_;
};

}  // namespace

constinit const lh_optimizer adamw8bit = lora_host::optimizer<AdamW8bit>("adamw8bit", options, names);

}  // namespace optim
