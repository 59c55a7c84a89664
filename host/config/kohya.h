// Files of kohya's sd-scripts: training arguments (--config_file there) and datasets (--dataset_config), as TOML.
// Each becomes the mapping that says the same in our keys, with the places of the file. docs/from-kohya.md tells users.
#pragma once

#include "config/config.h"
#include "config/translated.h"
#include "config/yaml.h"

namespace lh::kohya {

Translated training(const yaml::Node& file);
// arguments: those of the training arguments.
Translated datasets(const yaml::Node& file, const yaml::Node& arguments);
// What a run has where its files say nothing.
Config defaults();

}  // namespace lh::kohya
