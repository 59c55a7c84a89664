// Command line flags that set keys of the configuration: the schema checks their values as it checks a file's.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace lh {

struct ConfigFlag {
  std::string_view flag;  // "--rank"
  std::string_view key;   // "network.linear"
  std::string_view help;  // empty: the key's own line of documentation
};

using FlagValues = std::map<std::string_view, std::vector<std::string>>;  // flag -> values, in the order given

// Sets the key of each flag that has values; datasets[] keys are set in every dataset. Throws Code::config with all
// problems, one a line.
void apply_flags(std::span<const ConfigFlag> flags, const FlagValues& values, Config& config);

}  // namespace lh
