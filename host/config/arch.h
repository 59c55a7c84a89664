// What ai-toolkit calls the kind of model (model.arch, or model.is_...: true): which plugin has it, and which of that
// plugin's settings it means. Plugins say so themselves (`arch` of their checkpoint YAML).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/schema.h"

namespace lh {

// Names as they stand in files, "flux" of model.arch or "is_flux" -> settings by key.
using ArchNames = std::map<std::string, std::map<std::string, std::string>>;

struct PluginArch {
  std::string plugin;
  ArchNames names;
};

// value: where the name stands. Of "name:tag" that of the name counts where no plugin has it with the tag. A plugin
// that the user names is not asked, and settings that the user gives stay.
void apply_arch(schema::Acting& on, const std::string& name, const yaml::Node& value);

}  // namespace lh
