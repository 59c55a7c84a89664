// Names of plugins' parts in a configuration, looked up while it is read, so that a wrong one is told by its place.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "plugin/registry.h"

namespace lh {

// ConfigNeeds::wrong_name for a command: of the keys that it makes use of. registry has to stay; none: nothing is
// wrong.
std::function<std::string(std::string_view, const std::string&)> part_names_of(const std::string& command,
                                                                               const Registry* registry);

}  // namespace lh
