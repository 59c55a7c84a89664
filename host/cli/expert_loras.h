// Which of several experts each --lora of `lora-host sample` is for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compile/other_experts.h"
#include "io/lora_merge.h"
#include "plugin/model.h"
#include "plugin/registry.h"

namespace lh {

// By the expert's name; under "" those of a model that is no expert.
using LorasByExpert = std::map<std::string, std::vector<LoraInput>>;

// NAME=FILE is for the expert of this name; else the name of the file may end in one; else it is the opened model's.
LorasByExpert loras_by_expert(const Registry& registry, const Model& model, const std::vector<LoraInput>& given);
// Throws lh::Error(Code::config) where a file is for an expert that samples go without.
void check_experts(const Model& model, const OtherExperts& experts, const LorasByExpert& loras);

}  // namespace lh
