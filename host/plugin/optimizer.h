// An optimizer plugin at work: its states, and its update rule as graphs (optimizer.h of the SDK).
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugin/part.h"

namespace lh {

// A trained tensor as a rule sees it.
struct Parameter {
  std::string name, module;
  int32_t role = LH_ROLE_OTHER;
  int64_t rank = 0;  // of its adapter; 0 = none
  uint32_t group = 0;
  Shape shape = {};  // that files have
};

struct StateSpec {
  std::string name;
  bool of_group = false;
  int32_t initial = LH_INITIAL_ZERO, meaning = LH_MEANING_OWN;
  double value = 0;
  Desc desc;
  bool operator==(const StateSpec&) const = default;
};

// Names in the graphs of a rule.
inline constexpr const char* sum_prefix = "sum.";
inline constexpr const char* max_prefix = "max.";
bool is_reduction(const std::string& name);

class Optimizer {
 public:
  // id: the rule's, or another name of it. Throws lh::Error(Code::config) for an option that the rule does not know or
  // refuses.
  Optimizer(const Registry& registry, const std::string& id, const GivenOptions& options);
  Optimizer(const Offered<lh_optimizer>& offered, const GivenOptions& options);

  std::string id() const { return part_->id; }
  uint32_t revision() const { return part_->revision; }
  const std::string& options() const { return part_.options_text(); }
  bool elementwise() const { return elementwise_; }
  uint32_t passes() const { return passes_; }

  std::vector<StateSpec> states(const Parameter& parameter) const;
  // The graphs of a step, checked: their inputs and outputs are what optimizer.h allows. `known`: scalars and
  // reductions ("sum.x") that earlier graphs of the step have given; what this one gives is added.
  Graph build_pass(uint32_t pass, const Parameter& parameter, std::vector<std::string>& known) const;
  Graph build_between(uint32_t pass, const Parameter& any, std::vector<std::string>& known) const;
  // A graph without outputs where p itself is what is saved.
  Graph build_evaluation(const Parameter& parameter) const;

 private:
  template <typename Build>
  Graph build(const std::string& function, Build build) const;

  Part<lh_optimizer> part_;
  bool elementwise_ = false;
  uint32_t passes_ = 1;
};

}  // namespace lh
