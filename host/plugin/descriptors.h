// What a plugin's factory gives, looked at before anything of it is used.
#pragma once

#include <cstdint>
#include <filesystem>

#include "lora_host/lora_host.h"

namespace lh {

// Can it be shown on a terminal: printable ASCII of a reasonable length, without escape sequences.
bool is_plain(const char* text);

// Descriptor number `index` of a factory of the plugin at `path`. Throws lh::Error(Code::plugin) where it is shorter
// than in the oldest minor number that this host takes, or lacks a field that must be there.
void check_descriptor(const lh_model& model, const std::filesystem::path& path, const char* factory, uint32_t index);
void check_descriptor(const lh_optimizer& rule, const std::filesystem::path& path, const char* factory, uint32_t index);
void check_descriptor(const lh_adapter& adapter, const std::filesystem::path& path, const char* factory,
                      uint32_t index);
void check_descriptor(const lh_sampler& sampler, const std::filesystem::path& path, const char* factory,
                      uint32_t index);
void check_descriptor(const lh_schedule& schedule, const std::filesystem::path& path, const char* factory,
                      uint32_t index);

}  // namespace lh
