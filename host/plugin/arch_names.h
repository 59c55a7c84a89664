// What ai-toolkit calls the models of all plugins.
#pragma once

#include "config/arch.h"
#include "plugin/registry.h"

namespace lh {

std::vector<PluginArch> arch_names(const Registry& registry);

}  // namespace lh
