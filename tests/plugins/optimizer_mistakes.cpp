// An optimizer that breaks its contract in the way that LORA_TEST_MISTAKE names; without it, it is sound.
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "lora_host/lora_host.hpp"

namespace {

using lora_host::Parameter;
using lora_host::State;
using lora_host::States;
using lora_host::UpdateGraph;
using lora_host::Value;

bool mistake(const char* name) {
  const char* asked = std::getenv("LORA_TEST_MISTAKE");
  return asked != nullptr && std::string(asked) == name;
}

class Mistakes : public lora_host::Optimizer {
 public:
  explicit Mistakes(const lora_host::Options&) {}
  bool elementwise() const override { return mistake("not_elementwise") || mistake("flat_state"); }
  uint32_t passes() const override { return mistake("no_passes") ? 0 : mistake("many_passes") ? 9 : 2; }

  States states(const Parameter& p) const override {
    if (mistake("crash")) std::raise(SIGSEGV);
    if (mistake("exit")) std::_Exit(0);
    if (mistake("abort")) std::abort();
    if (mistake("umask")) ::umask(0111);
    States states{State::like(p, "m"), State::of_group("d", mistake("state_nan") ? NAN : 1)};
    static const std::vector<std::string> many = [] {
      std::vector<std::string> names;
      for (size_t i = 0; i < 64; ++i) names.emplace_back(i + 2, 'm');
      return names;
    }();
    if (mistake("state_endless"))
      for (const std::string& name : many) states.push_back(State::like(p, name.c_str()));
    if (mistake("state_twice")) states.push_back(State::like(p, "m"));
    if (mistake("state_name")) states.push_back(State::like(p, "lr"));
    if (mistake("state_reduction_name")) states.push_back(State::like(p, "sum.x"));
    if (mistake("state_scope")) states[0].scope = 7;
    if (mistake("state_initial")) states[0].initial = 7;
    if (mistake("state_meaning")) states[0].meaning = 7;
    if (mistake("state_type")) states[0].dtype = LH_F16;
    if (mistake("state_empty")) states[0].dims = {0};
    if (mistake("state_copy")) states[0] = {"m", {3}, LH_F32, LH_STATE_OF_TENSOR, LH_INITIAL_PARAMETER};
    if (mistake("flat_state")) states[0].dims = {3};
    return states;
  }

  void build_pass(UpdateGraph& g, uint32_t pass, const Parameter& p) const override {
    if (mistake("unknown_input")) g.set("p", g.add(g.p(), g.scalar("nothing")));
    if (mistake("too_early") && pass == 0) g.set("p", g.add(g.p(), g.reduced_sum("x")));
    if (mistake("input_shape")) return g.set("p", g.sub(g.p(), g.sum(g.input("g", {7, 7}, LH_F32), {0, 1})));
    if (mistake("output_shape")) g.set("p", g.number(1));
    if (mistake("unknown_output")) g.set("q", g.p());
    if (mistake("group_state_in_pass")) g.set("d", g.number(1));
    if (mistake("state_absent")) g.set("p", g.add(g.p(), g.state("v")));
    if (mistake("not_elementwise")) g.set("p", g.sub(g.p(), g.sum(g.g(), {0})));
    if (pass == 0) g.reduce_sum("x", g.square(g.g()));
    if (pass == 1 && !mistake("output_shape") && !mistake("no_change"))
      g.set("p", g.sub(g.p(), g.mul(g.g(), g.scalar("rate"))));
    (void)p;
  }

  void build_between(UpdateGraph& g, uint32_t pass) const override {
    if (mistake("tensor_in_between")) g.set("rate", g.sum(g.input("p", {8, 3}, LH_F32), {0, 1}));
    if (mistake("tensor_state_in_between")) g.set("m", g.number(1));
    if (mistake("scalar_shape"))
      g.set("rate", g.constant({2}, std::vector<float>{1, 2}));
    else if (pass == 0 && !mistake("tensor_in_between"))
      g.set("rate", g.div(g.lr(), g.reduced_sum("x")));
  }

  void build_evaluation(UpdateGraph& g, const Parameter&) const override {
    if (mistake("gradient_in_evaluation")) g.set("p", g.add(g.p(), g.g()));
    if (mistake("state_in_evaluation")) g.set("m", g.state("m"));
  }
};

constexpr lh_optimizer mistakes = lora_host::optimizer<Mistakes>("mistakes", nullptr);

}  // namespace

LORA_HOST_PLUGIN("optimizer_mistakes", "0", "MIT", {LH_OPTIMIZER_FACTORY, &mistakes})
