// sample.prompts: texts, in which flags say how the image is made, or mappings that say it by name.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/yaml.h"

namespace lh::schema {

// One text or mapping, or a list of them. What is wrong is appended to `problems`, with the place of the item.
std::vector<SampleItem> read_samples(const yaml::Node& node, std::vector<yaml::Problem>& problems);
// In YAML flow style; an item that says nothing of its own is its text.
std::string print_samples(const std::vector<SampleItem>& items);

}  // namespace lh::schema
