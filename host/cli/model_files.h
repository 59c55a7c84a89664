// Which files of a folder make up a model: people download its parts one by one, under names of their own.
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"
#include "config/print.h"
#include "plugin/registry.h"

namespace lh {

// Fills in what of a model was not given: the file itself where only a plugin was named, and parts that are not in it.
// They are looked for in a folder and its sub-folders; of several the first by name is taken, and a comment names
// another. Throws lh::Error(Code::config) that says what is missing and where it is published.
struct ModelSearch {
  std::string plugin;            // id; empty: the plugin that takes the model's file
  std::filesystem::path folder;  // need not be there
};
void complete_model(const Registry& registry, const ModelSearch& search, Config& config, KeyComments& comments);

}  // namespace lh
