// What the interface kohya_ss has of its own for a plugin's model: `kohya_ss` of the plugin's checkpoint YAML
// (docs/plugin-guide.md). Its presets have the fields of all models beside each other.
#pragma once

#include <string>
#include <vector>

namespace lh {

struct KohyaSsModel {
  std::string on;                         // the field that is true for it
  std::vector<std::string> prefixes;      // of its fields, without which they are arguments of the scripts
  std::vector<std::string> fields;        // further ones, which are arguments as they stand
  std::string lora_type;                  // the LoRA_type that its script has alone; empty: none
  std::vector<std::string> network_args;  // fields that are arguments of that network
  bool trains_text = true;                // false: its text encoders stay as they are, whatever their rate says
};

}  // namespace lh
