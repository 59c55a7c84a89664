// The part of a recipe that describes a tokenizer.
#pragma once

#include <yaml-cpp/yaml.h>

#include "data/tokenizer_spec.h"

namespace lh {

// Throws lh::Error(Code::plugin) naming plugin and line.
TokenizerSpec parse_tokenizer(const YAML::Node& node, const std::string& plugin);

}  // namespace lh
