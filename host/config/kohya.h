// Files of kohya's sd-scripts: training arguments (--config_file there) and datasets (--dataset_config), as TOML.
// Each becomes the mapping that says the same in our keys, with the places of the file. docs/from-kohya.md tells users.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/yaml.h"

namespace lh::kohya {

struct Translated {
  yaml::Node document = {.kind = yaml::Kind::map};  // our keys
  std::vector<std::string> notes;                   // what happens in place of what the file says
  std::vector<std::string> ignored;                 // keys without effect here
  std::vector<yaml::Problem> problems;
  yaml::Node arguments = {.kind = yaml::Kind::map};  // of datasets: what their file does not say
  bool masked_loss = false;                          // images of conditioning_data_dir are masks
};

Translated training(const yaml::Node& file);
// arguments: those of the training arguments.
Translated datasets(const yaml::Node& file, const yaml::Node& arguments);
// What a run has where its files say nothing.
Config defaults();

}  // namespace lh::kohya
