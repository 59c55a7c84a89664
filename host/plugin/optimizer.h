// An optimizer plugin at work: its states, and its update rule as a graph.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "plugin/options.h"
#include "plugin/registry.h"

namespace lh {

class Optimizer {
 public:
  // Throws lh::Error(Code::config) for an option that the rule does not know or refuses.
  Optimizer(const Registry& registry, const std::string& id, const GivenOptions& options);
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const std::string& id() const { return id_; }
  const std::vector<std::string>& states() const { return states_; }
  Graph build_update(const Shape& parameter) const;

 private:
  std::string call_name(const std::string& function) const;
  void create(const std::vector<lh_attr>& options);
  void read_states();
  void destroy() noexcept;
  std::string id_;
  Offered<lh_optimizer> offered_;
  void* self_ = nullptr;
  std::vector<std::string> states_;
};

}  // namespace lh
