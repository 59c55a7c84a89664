// Lion whose average is kept in 8 bits, as bitsandbytes has it.
//   p -= lr wd p;  p -= lr sign(b1 m + (1 - b1) g);  m = b2 m + (1 - b2) g, rounded
#include "blockwise.h"

namespace optim {
namespace {

constexpr lh_option options[] = {
    option::reals("betas", "[0.9, 0.99]", 2, option::from_below(0, 1),
                  "Weight of the average against g in a step, and its decay."),
    option::real("weight_decay", "0", option::at_least(0), "Share of a weight, times lr, that goes at each step."),
    option::integer("min_8bit_size", "4096", option::within(0, 1e9), min_8bit_size_help), option::end};

class Lion8bit : public lora_host::Optimizer {
 public:
  explicit Lion8bit(const Options& options)
      : betas_(options.reals("betas")),
        weight_decay_(options.real("weight_decay")),
        m_("m", "m.absmax", true, options.integer("min_8bit_size")) {}

  States states(const Parameter& p) const override {
    States states;
    m_.add_to(states, p, LH_MEANING_AVERAGE);
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t, const Parameter& p) const override {
    const Value m = m_.read(g, p), direction = g.sign(g.average(m, g.g(), betas_[0]));
    const Value kept = g.sub(g.p(), g.mul(g.p(), g.scale(g.lr(), weight_decay_)));
    g.set("p", g.sub(kept, g.mul(direction, g.lr())));
    m_.write(g, p, g.average(m, g.g(), betas_[1]));
  }

 private:
  std::vector<double> betas_;
  double weight_decay_;
  BlockwiseState m_;
};

}  // namespace

constinit const lh_optimizer lion8bit = lora_host::optimizer<Lion8bit>("lion8bit", options);

}  // namespace optim
