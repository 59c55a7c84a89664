// Presets and saved configurations of the interface kohya_ss (JSON): its fields become the arguments that it starts
// kohya's scripts with, which are then read as those of a file are (kohya.h). docs/from-kohya.md tells users.
#pragma once

#include <span>

#include "config/model_keys.h"
#include "config/translated.h"
#include "config/yaml.h"

namespace lh::kohya_ss {

bool is_preset(const yaml::Node& file);
kohya::Translated training(const yaml::Node& file, std::span<const PluginKeys> plugins);

}  // namespace lh::kohya_ss
