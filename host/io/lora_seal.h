// The seal of a LoRA file: `lora_host.digest`, the SHA-256 of names, types, shapes and data of its tensors. Metadata
// may be edited. A program that changes the tensors and, as sd-scripts does, writes its own `sshs_model_hash` breaks
// the seal rightly: `lora_host.sealed_hash` says which hash was sealed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace lh {

// Adds the seal to metadata that has its `sshs_model_hash`. tensors: as they will lie in the file.
void seal_lora(const std::vector<TensorToWrite>& tensors, std::map<std::string, std::string>& metadata);
// The SHA-256 of its data alone, which sd-scripts calls `sshs_model_hash` and other programs know a LoRA by. Reads all
// of the file.
std::string data_hash(const WeightFile& file);
// Throws lh::Error(Code::data) where the tensors are neither those that were sealed nor those of another program's
// hash. A file without a seal is believed. Reads all of the file.
void check_lora_seal(const WeightFile& file);

}  // namespace lh
