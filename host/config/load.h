// Reading a configuration whose missing parts may come from elsewhere, such as command line flags.
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"

namespace lh {

struct ConfigNeeds {  // what the text itself must name
  bool model = true, datasets = true;
};

// `file` is what problems are reported under. Throws like load_config.
Config parse_config(const std::string& text, const std::string& file, ConfigNeeds needs = {});
Config load_config(const std::filesystem::path& file, ConfigNeeds needs);

}  // namespace lh
