// What files of weights are called, where a folder is looked through for them.
#pragma once

#include <filesystem>

namespace lh {

inline constexpr const char* gguf_extension = ".gguf";

inline bool named_as_weights(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" || path.extension() == gguf_extension;
}

}  // namespace lh
