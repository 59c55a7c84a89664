// Files of musubi-tuner: training arguments (--config_file there) and datasets (--dataset_config), as TOML. They are
// told from those of sd-scripts by what they have. docs/from-musubi.md tells users.
#pragma once

#include "config/config.h"
#include "config/translated.h"
#include "config/yaml.h"

namespace lh::musubi {

bool is_training(const yaml::Node& file);
bool is_datasets(const yaml::Node& file);

kohya::Translated training(const yaml::Node& file);
// training: what became of the training arguments, in our keys.
kohya::Translated datasets(const yaml::Node& file, const yaml::Node& training);
// What a run has where its files say nothing.
Config defaults();

}  // namespace lh::musubi
