// The YAML of a tokenizer: in a recipe, and in the tokenizer.yaml of a bundled folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "config/strict.h"
#include "data/tokenizer_spec.h"

namespace lh {

// Every field of a recipe's tokenizer.
TokenizerSpec read_tokenizer_spec(const yaml::Strict& in, const yaml::Node& node);

// A tokenizer.yaml: what files of a kind leave unsaid. A recipe whose `kind` is the folder's name takes everything from
// it that it does not say itself.
struct TokenizerPreset {
  TokenizerSpec spec;  // kind, pad, begin, end, rules
  // How many the files beside it have; 0 = not said.
  int64_t tokens = 0, merges = 0;
};
TokenizerPreset read_tokenizer_preset(const std::string& yaml, const std::filesystem::path& file);

}  // namespace lh
