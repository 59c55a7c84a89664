// What is in a weights file, as text for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/lora_inspect.h"

namespace lh {

// Any safetensors file or diffusers directory; LoRA files with a table of their modules and what `models` have such
// names.
std::string inspect(const std::filesystem::path& path, const std::vector<ModelNames>& models);

}  // namespace lh
