// Which modules of a model get an adapter, and which.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/module_numbers.h"
#include "passes/adapt.h"
#include "plugin/recipe.h"

namespace lh {

using SelectAdapter = std::function<const AdapterSpec*(const std::string& module)>;

// The same adapters with `strength` times what they change. What it gives is valid until its next call.
SelectAdapter at_strength(const SelectAdapter& select, double strength);

// Which modules get which adapter: the recipe's targets or the user's, narrowed by network_kwargs. Convolution blocks
// are among them where network.conv is set, "<encoder>:<module>" of the text encoders where these are trained. Ranks
// and alphas are the user's for the module's name, or else those of its kind.
class AdapterSelection {
 public:
  // weights: shapes of the checkpoint, which tell convolutions from 1x1 ones; only looked at for network.conv.
  // rule: of the adapter; none: plain LoRA.
  AdapterSelection(const NetworkConfig& network, const Recipe& recipe, uint64_t seed,
                   const std::map<std::string, Desc>& weights = {}, bool text_encoders = false,
                   std::shared_ptr<const AdapterRule> rule = nullptr);
  // Valid until the next call of the same object.
  const AdapterSpec* operator()(const std::string& module) const;
  bool text_encoders() const { return !text_targets_.empty(); }
  // Throws lh::Error(Code::config) for a pattern of module_ranks or module_alphas that is like none of these.
  void require_use(const std::vector<std::string>& modules) const;

 private:
  const AdapterSpec* spec_of(const std::string& module) const;
  std::shared_ptr<const AdapterRule> rule_;
  ModuleNumbers ranks_, alphas_;
  mutable AdapterSpec own_;  // of a module with a rank or alpha of its own
  AdapterSpec linear_, conv_;
  LoraTargets targets_, conv_targets_;
  std::set<std::string> large_kernels_;              // modules
  std::map<std::string, LoraTargets> text_targets_;  // by encoder
  std::vector<std::string> only_, ignore_;
};

}  // namespace lh
