// Files of musubi-tuner: training arguments (--config_file there) and datasets (--dataset_config), as TOML. They are
// told from those of sd-scripts by what they have. docs/from-musubi.md tells users.
#pragma once

#include <span>
#include <string>

#include "config/config.h"
#include "config/model_keys.h"
#include "config/translated.h"
#include "config/yaml.h"

namespace lh::musubi {

bool is_training(const yaml::Node& file);
bool is_datasets(const yaml::Node& file);

// plugins: those that may have the model.
kohya::Translated training(const yaml::Node& file, std::span<const PluginKeys> plugins);
// fps: of the videos on which the model is trained.
kohya::Translated datasets(const yaml::Node& file, double fps);
double fps_of(std::span<const PluginKeys> plugins, const std::string& plugin);
// What a run has where its files say nothing.
Config defaults();

}  // namespace lh::musubi
