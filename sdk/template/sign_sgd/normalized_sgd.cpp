// SGD whose step has a length of its own: all weights of a group move by lr together, whatever the gradient's norm is.
// It shows a reduction over all tensors, a number that is kept between steps, and weights that are averaged for the
// file.
//   n = |g| over all tensors;  p = p - lr g / n;  the file gets the average of p
#include <lora_host/lora_host.hpp>

namespace {

using lora_host::Parameter;
using lora_host::State;
using lora_host::States;
using lora_host::UpdateGraph;
using lora_host::Value;
namespace option = lora_host::option;

constexpr lh_option options[] = {option::real("average", "0.99", option::from_below(0, 1),
                                              "Decay of the average that is saved; 0: the last weights."),
                                 option::end};

class NormalizedSgd : public lora_host::Optimizer {
 public:
  explicit NormalizedSgd(const lora_host::Options& options) : average_(options.real("average")) {}

  bool elementwise() const override { return true; }
  uint32_t passes() const override { return 2; }

  States states(const Parameter& p) const override {
    return {State::copy_of(p, "average"), State::of_group("largest_norm")};
  }

  void build_pass(UpdateGraph& g, uint32_t pass, const Parameter&) const override {
    if (pass == 0) return g.reduce_sum("squares", g.square(g.g()));
    const Value p = g.sub(g.p(), g.mul(g.g(), g.scalar("rate")));
    g.set("p", p);
    g.set("average", g.average(g.state("average"), p, average_));
  }

  // After pass 0: what pass 1 multiplies g by, and a number for the state file.
  void build_between(UpdateGraph& g, uint32_t pass) const override {
    if (pass != 0) return;
    const Value norm = g.sqrt(g.reduced_sum("squares"));
    g.set("rate", g.div(g.lr(), g.shift(norm, 1e-12)));
    g.set("largest_norm", g.max(g.state("largest_norm"), norm));
  }

  void build_evaluation(UpdateGraph& g, const Parameter&) const override {
    if (average_ != 0) g.set("p", g.state("average"));
  }

 private:
  double average_;
};

constexpr lh_optimizer normalized_sgd = lora_host::optimizer<NormalizedSgd>("normalized_sgd", options);

}  // namespace

LORA_HOST_PLUGIN("normalized_sgd", "0.1.0", "MIT", {LH_OPTIMIZER_FACTORY, &normalized_sgd})
