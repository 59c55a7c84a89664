// The commands and options of lora-host put into CLI11's parser.
#pragma once

#include <vector>

#include "cli/arguments.h"

namespace CLI {
class App;
}

namespace lh {

// What is parsed lands in `raw`, which has to outlive `app`. plugins: keys that have flags. model: the plugin whose
// flags help explains; others it only names.
void define(CLI::App& app, const std::vector<PluginKeys>& plugins, const std::string& model, Arguments& raw);

}  // namespace lh
