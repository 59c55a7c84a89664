// The C++ side of optimizer.h:
//
//   class Sgd : public lora_host::Optimizer {
//    public:
//     explicit Sgd(const lora_host::Options& options);
//     bool elementwise() const override { return true; }
//     void build_pass(UpdateGraph& g, uint32_t, const Parameter&) const override {
//       g.set("p", g.sub(g.p(), g.mul(g.g(), g.lr())));
//     }
//   };
//   const lh_optimizer sgd = lora_host::optimizer<Sgd>("sgd", options);
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lora_host/graph.hpp"

namespace lora_host {

// A trained tensor.
struct Parameter {
  std::string name, module;
  int32_t role = LH_ROLE_OTHER;
  int64_t rank = 0;
  uint32_t group = 0;
  Dims dims;

  Parameter() = default;
  explicit Parameter(const lh_parameter& p)
      : name(p.name), module(p.module), role(p.role), rank(p.rank), group(p.group), dims(dims_of(p.desc)) {}
  int64_t elements() const {
    int64_t count = 1;
    for (int64_t length : dims) count *= length;
    return count;
  }
};

// `name` must outlive the rule: a literal.
struct State {
  const char* name;
  Dims dims;
  lh_dtype dtype = LH_F32;
  int32_t scope = LH_STATE_OF_TENSOR, initial = LH_INITIAL_ZERO, meaning = LH_MEANING_OWN;
  double value = 0;

  static State like(const Parameter& p, const char* name, int32_t meaning = LH_MEANING_OWN) {
    State state{name, p.dims};
    state.meaning = meaning;
    return state;
  }
  static State copy_of(const Parameter& p, const char* name) {
    State state{name, p.dims};
    state.initial = LH_INITIAL_PARAMETER;
    return state;
  }
  // One number for all tensors of a group.
  static State of_group(const char* name, double value = 0) {
    State state{name, {1}};
    state.scope = LH_STATE_OF_GROUP;
    state.initial = LH_INITIAL_CONSTANT;
    state.value = value;
    return state;
  }
};
using States = std::vector<State>;

// A graph of a step: inputs by what they are, arithmetic with numbers, outputs by name.
class UpdateGraph : public Graph {
 public:
  UpdateGraph(lh_graph* graph, Dims dims, States states)
      : Graph(graph), dims_(std::move(dims)), states_(std::move(states)) {}

  Value p() { return tensor("p", dims_, LH_F32); }
  Value g() { return tensor("g", dims_, LH_F32); }
  Value lr() { return scalar("lr"); }
  Value step() { return scalar("step"); }
  Value state(const std::string& name) {
    for (const State& state : states_)
      if (name == state.name) return tensor(name, state.dims, state.dtype);
    throw Failure(LH_E_INVALID, "the rule has no state '" + name + "'");
  }
  // What a `between` gave, or with reduced_sum and reduced_max the result of a reduction. [1]
  Value scalar(const std::string& name) { return tensor(name, {1}, LH_F32); }
  Value reduced_sum(const std::string& name) { return scalar("sum." + name); }
  Value reduced_max(const std::string& name) { return scalar("max." + name); }

  void set(const std::string& name, Value value) { output(name, value); }
  void reduce_sum(const std::string& name, Value value) { output("sum." + name, value); }
  void reduce_max(const std::string& name, Value value) { output("max." + name, value); }

  Value number(double value) { return constant({1}, std::vector<float>{static_cast<float>(value)}); }
  Value scale(Value x, double factor) { return affine(x, factor, 0); }
  Value shift(Value x, double summand) { return affine(x, 1, summand); }
  // decay average + (1 - decay) x
  Value average(Value average, Value x, double decay) { return add(scale(average, decay), scale(x, 1 - decay)); }
  // base^exponent for a number above 0. exponent: [1]
  Value power(double base, Value exponent) { return exp(scale(exponent, std::log(base))); }
  // 1 - base^exponent without cancellation, for a base from 0 to below 1: 1 - e^-x = 2 tanh(x/2) / (1 + tanh(x/2)).
  Value one_minus_power(double base, Value exponent) {
    if (base == 0) return number(1);
    const Value half = tanh(scale(exponent, -std::log(base) / 2));
    return div(scale(half, 2), shift(half, 1));
  }

 private:
  // An input is declared once, however often it is used.
  Value tensor(const std::string& name, const Dims& dims, lh_dtype dtype) {
    for (const auto& [known, value] : inputs_)
      if (known == name) return value;
    inputs_.emplace_back(name, input(name, dims, dtype));
    return inputs_.back().second;
  }

  Dims dims_;
  States states_;
  std::vector<std::pair<std::string, Value>> inputs_;
};

// An update rule: constructed from Options.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual bool elementwise() const { return false; }
  virtual uint32_t passes() const { return 1; }
  virtual States states(const Parameter&) const { return {}; }
  virtual void build_pass(UpdateGraph& g, uint32_t pass, const Parameter& parameter) const = 0;
  virtual void build_between(UpdateGraph&, uint32_t) const {}
  virtual void build_evaluation(UpdateGraph&, const Parameter&) const {}
};

// names: other names that users know it by, NULL-terminated. learning_rate: that users give it, where it is far from
// the usual; 0 = it is not.
template <typename T>
constexpr lh_optimizer optimizer(const char* id, const lh_option* options, const char* const* names = nullptr,
                                 uint32_t revision = 1, double learning_rate = 0) {
  using Rule = Held<Optimizer>;
  lh_optimizer out{};
  out.struct_size = sizeof(lh_optimizer);
  out.id = id;
  out.names = names;
  out.revision = revision;
  out.learning_rate = learning_rate;
  out.options = options;
  out.create = [](const lh_host* host, const lh_attr* given, uint32_t count, void** self) noexcept {
    return guarded(*host->api, [&] { *self = new Rule{host->api, std::make_unique<T>(Options(given, count))}; });
  };
  out.destroy = [](void* self) noexcept { delete &Rule::of(self); };
  out.flags = [](void* self) noexcept -> uint32_t {
    uint32_t flags = 0;
    (void)guarded(*Rule::of(self).api,
                  [&] { flags = Rule::of(self).object->elementwise() ? LH_OPTIMIZER_ELEMENTWISE : 0; });
    return flags;
  };
  out.passes = [](void* self) noexcept -> uint32_t {
    uint32_t passes = 0;
    (void)guarded(*Rule::of(self).api, [&] { passes = Rule::of(self).object->passes(); });
    return passes;
  };
  out.state = [](void* self, const lh_parameter* parameter, uint32_t index, lh_state* state) noexcept {
    return guarded(*Rule::of(self).api, [&] {
      const States states = Rule::of(self).object->states(Parameter(*parameter));
      lh_state found{};
      if (index < states.size()) {
        const State& s = states[index];
        found = {s.name, s.scope, s.initial, s.meaning, s.value, make_desc(s.dtype, s.dims)};
      }
      *state = found;
    });
  };
  out.build_pass = [](void* self, lh_graph* graph, uint32_t pass, const lh_parameter* parameter) noexcept {
    return guarded(*graph->api, [&] {
      const Optimizer& rule = *Rule::of(self).object;
      const Parameter p(*parameter);
      UpdateGraph g(graph, p.dims, rule.states(p));
      rule.build_pass(g, pass, p);
    });
  };
  out.build_between = [](void* self, lh_graph* graph, uint32_t pass) noexcept {
    return guarded(*graph->api, [&] {
      const Optimizer& rule = *Rule::of(self).object;
      Parameter any;
      any.dims = {1};
      UpdateGraph g(graph, {1}, rule.states(any));
      rule.build_between(g, pass);
    });
  };
  out.build_evaluation = [](void* self, lh_graph* graph, const lh_parameter* parameter) noexcept {
    return guarded(*graph->api, [&] {
      const Optimizer& rule = *Rule::of(self).object;
      const Parameter p(*parameter);
      UpdateGraph g(graph, p.dims, rule.states(p));
      rule.build_evaluation(g, p);
    });
  };
  return out;
}

}  // namespace lora_host
