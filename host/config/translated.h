// What becomes of a file of another trainer.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/yaml.h"

namespace lh::kohya {

struct Translated {
  yaml::Node document = {.kind = yaml::Kind::map};  // our keys
  std::vector<std::string> notes;                   // what happens in place of what the file says
  std::vector<std::string> ignored;                 // keys without effect here, each once
  std::vector<yaml::Problem> problems;
  yaml::Node arguments = {.kind = yaml::Kind::map};  // of datasets: what their file does not say
  void ignore(const std::string& key) {
    if (std::ranges::find(ignored, key) == ignored.end()) ignored.push_back(key);
  }
  bool masked_loss = false;              // images of conditioning_data_dir are masks
  std::filesystem::path dataset_config;  // the file of datasets that it names, or empty
  // A line of sample_prompts in our flags, where they are not the same; what is to be said of it goes into `made`.
  std::function<std::string(const std::string& line, yaml::Place, Translated& made)> prompt = {};
};

}  // namespace lh::kohya
