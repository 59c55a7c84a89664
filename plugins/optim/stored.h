// States in float32, or for half the memory in bfloat16. bfloat16 is rounded at random, so that what is kept has the
// computed number as its mean: a step moves an average by the share 1 - beta of its distance to x, and for beta 0.999
// that is less than rounding to nearest, 2^-9, would see of it; the average would stay where it is.
#pragma once

#include <initializer_list>

#include "optimizers.h"

namespace optim {

inline constexpr const char* state_types[] = {"fp32", "bf16", nullptr};
inline constexpr lh_option state_dtype_option =
    option::choice("state_dtype", "fp32", state_types,
                   "Type of the averages; bf16 takes half the memory and is rounded at random, right in the mean.");

class StoredStates {
 public:
  explicit StoredStates(const Options& options) : narrow_(options.text("state_dtype") == "bf16") {}

  bool narrow() const { return narrow_; }
  State like(const Parameter& p, const char* name, int32_t meaning = LH_MEANING_OWN) const {
    State state = State::like(p, name, meaning);
    if (narrow_) state.dtype = LH_BF16;
    return state;
  }
  Value read(UpdateGraph& g, const char* name) const { return narrow_ ? g.cast(g.state(name), LH_F32) : g.state(name); }
  // Once in a step with all of them: each draws numbers of its own, by its place in the list and the group of p.
  struct Next {
    const char* name;
    Value value;
  };
  void write(UpdateGraph& g, const Parameter& p, std::initializer_list<Next> states) const {
    const Value step = narrow_ ? g.cast(g.step(), LH_I32) : Value{};
    int64_t stream = most * static_cast<int64_t>(p.group);
    for (const Next& next : states)
      g.set(next.name, narrow_ ? g.round_stochastic(next.value, step, 0, stream++) : next.value);
  }

 private:
  static constexpr int64_t most = 8;  // states of a rule
  bool narrow_;
};

}  // namespace optim
