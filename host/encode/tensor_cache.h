// Tensors kept on disk under a content key, so that encoders run once for each image and prompt.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace lh {

class TensorCache {
 public:
  // An empty folder keeps everything in memory only.
  explicit TensorCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // nullptr when the key is unknown. A damaged file counts as unknown, with a warning, and is made again.
  const NamedTensors* find(const std::string& key);
  const NamedTensors& put(const std::string& key, NamedTensors tensors);
  bool on_disk() const { return !folder_.empty(); }
  bool contains(const std::string& key) const;

 private:
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".safetensors"); }
  std::filesystem::path folder_;
  std::map<std::string, NamedTensors> loaded_;
};

}  // namespace lh
