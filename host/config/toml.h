// A TOML document as the tree that YAML documents become (yaml.h), by toml++: its nodes know where they stand.
#pragma once

#include <string>
#include <vector>

#include "config/yaml.h"

namespace lh::toml_file {

// Appends what is wrong to `problems`; the tree, a mapping in the order of the file, is usable when nothing was added.
yaml::Node parse(const std::string& text, std::vector<yaml::Problem>& problems);

}  // namespace lh::toml_file
