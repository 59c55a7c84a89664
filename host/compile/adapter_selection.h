// Which modules of a model get an adapter, and which.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "passes/adapt.h"
#include "plugin/recipe.h"

namespace lh {

using SelectAdapter = std::function<const AdapterSpec*(const std::string& module)>;

// Which modules get which adapter: the recipe's targets, narrowed by network_kwargs. Convolution blocks are among them
// where network.conv is set, "<encoder>:<module>" of the text encoders where these are trained.
class AdapterSelection {
 public:
  // weights: shapes of the checkpoint, which tell convolutions from 1x1 ones; only looked at for network.conv.
  AdapterSelection(const NetworkConfig& network, const Recipe& recipe, uint64_t seed,
                   const std::map<std::string, Desc>& weights = {}, bool text_encoders = false);
  const AdapterSpec* operator()(const std::string& module) const;
  bool text_encoders() const { return !text_targets_.empty(); }

 private:
  const AdapterSpec* spec_of(const std::string& module) const;
  AdapterSpec linear_, conv_;
  LoraTargets targets_, conv_targets_;
  std::set<std::string> large_kernels_;              // modules
  std::map<std::string, LoraTargets> text_targets_;  // by encoder
  std::vector<std::string> only_, ignore_;
};

}  // namespace lh
