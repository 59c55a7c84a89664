// What a LoRA file holds, for people and for tools: spellings, kinds, ranks, alphas and norms of its modules, and the
// models whose layers have such names.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "io/lora_read.h"

namespace lh {

struct ModelNames {  // a plugin's names
  std::string plugin;
  CheckpointSpec spec;
};

// Modules whose names differ in numbers only, and that are alike otherwise, share a line.
std::string lora_text(const LoraFile& file, const std::vector<ModelNames>& models);
nlohmann::json lora_json(const LoraFile& file, const std::vector<ModelNames>& models);

// Metadata comes from strangers: nothing of it may steer a terminal. Texts longer than `most` bytes are cut.
inline constexpr size_t printable_width = 200;
std::string printable(std::string_view text, size_t most = printable_width);

}  // namespace lh
