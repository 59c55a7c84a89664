// Command line flags for the keys of `model:` that plugins have: --t5 for t5_path, --variant for variant.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/model_keys.h"

namespace lh {

// "t5_path" -> "--t5", "text_type" -> "--text-type".
std::string flag_of(const std::string& key);

// Flag -> key, for every key of the plugins whose flag is not `taken`. Where two keys have one flag, it is the file's.
std::map<std::string, std::string> plugin_flags(const std::vector<PluginKeys>& plugins,
                                                const std::function<bool(const std::string&)>& taken);

// The flags' names and the plugins that have some, for a help text that says what they are where a plugin is named.
std::string plugin_flags_summary(const std::vector<PluginKeys>& plugins,
                                 const std::map<std::string, std::string>& flags);

// A section of help: each plugin with its flags.
std::string plugin_flags_help(const std::vector<PluginKeys>& plugins, const std::map<std::string, std::string>& flags);

}  // namespace lh
