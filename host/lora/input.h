// LoRA files as the tools take them: whole, sealed, finite, with nothing in them that is not understood.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/lora_read.h"

namespace lh {

// Throws lh::Error(Code::data) that names what is wrong. The file may be one of a plugin's adapter (io/foreign_lora.h).
LoraFile open_lora(const std::filesystem::path& path);

// Metadata that stays true of the same adapters at other ranks or by other names: all but hashes, seals, ranks, alphas
// and scales, which are written anew.
std::map<std::string, std::string> carried_metadata(const WeightFile& file);
// What all of several files say alike, and is true of plain LoRAs made of them.
std::map<std::string, std::string> shared_metadata(const std::vector<std::filesystem::path>& files);

inline constexpr const char* origin_entry = "lora_host.origin";  // what a tool made the file of, in words

// The one type of a file's tensors but alpha; float32 where there are several.
DType type_of(const LoraFile& file);

}  // namespace lh
