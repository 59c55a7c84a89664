// Tensors kept on disk under a content key, so that encoders run once for each image and prompt. An entry is a record
// (io/record.h): one that was changed, exchanged with another or put there by somebody else is made again.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace lh {

class TensorCache {
 public:
  // An empty folder keeps everything in memory only. kind: of the records, with a revision ("latents/1").
  TensorCache(std::filesystem::path folder, std::string kind) : folder_(std::move(folder)), kind_(std::move(kind)) {}
  // What is wrong with the names, types, shapes or values of an entry; empty: nothing.
  using Check = std::function<std::string(const NamedTensors&)>;
  // nullptr when the key is unknown. A file that is not what was put there counts as unknown, with a warning.
  const NamedTensors* find(const std::string& key, const Check& check);
  // Where something else than a file stands in the entry's place, it is kept in memory only, with a warning.
  const NamedTensors& put(const std::string& key, NamedTensors tensors);
  bool on_disk() const { return !folder_.empty(); }
  const std::filesystem::path& folder() const { return folder_; }
  bool contains(const std::string& key) const;

 private:
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".safetensors"); }
  std::filesystem::path folder_;
  std::string kind_;
  std::map<std::string, NamedTensors> loaded_;
};

}  // namespace lh
