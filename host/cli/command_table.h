// What each command takes, for pages that are made of it.
#pragma once

#include <string>
#include <vector>

#include "config/model_keys.h"

namespace lh {

struct OptionInfo {
  std::vector<std::string> names;  // "--rank"; of a word that stands without one, its name
  std::string value, help;         // value: "INTEGER", "bf16|fp16"; empty: a flag
  bool positional = false;
  bool of_plugin = false;  // a file or setting of a model
};

struct CommandInfo {
  std::string name, help, after;  // after: examples and notes
  std::vector<OptionInfo> options;
};

// lora-host itself, then its commands. plugins: keys that have flags.
std::vector<CommandInfo> command_table(const std::vector<PluginKeys>& plugins);

}  // namespace lh
