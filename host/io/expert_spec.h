// The section `experts` of a plugin's checkpoint YAML.
#pragma once

#include <vector>

#include "config/experts.h"
#include "config/model_keys.h"
#include "config/strict.h"

namespace lh {

// keys: those of the same YAML, to which the files of the experts are added.
Experts read_experts(const yaml::Strict& in, const yaml::Node& root, std::vector<ModelKey>& keys);

}  // namespace lh
