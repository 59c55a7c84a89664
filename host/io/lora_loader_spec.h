// The `lora_loaders` of a plugin's `checkpoint` YAML: which program loads which keys of a LoRA file.
#pragma once

#include <string>

#include "config/strict.h"
#include "io/checkpoint.h"

namespace lh {

// The rules of one program, about components that `spec` has.
LoraLoader read_lora_loader(const yaml::Strict& in, const CheckpointSpec& spec, const std::string& program,
                            const yaml::Node& rules);

}  // namespace lh
