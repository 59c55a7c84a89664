// What is in a weights file, as text for people.
#pragma once

#include <filesystem>
#include <string>

namespace lh {

// Any safetensors file or diffusers directory; LoRA files with a table of their modules.
std::string inspect(const std::filesystem::path& path);

}  // namespace lh
