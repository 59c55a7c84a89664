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
  // Lets go of what was used least lately, where it is on disk, until the rest has at most so many bytes. What find()
  // and put() gave before is no longer there.
  void keep(int64_t bytes);
  bool on_disk() const { return !folder_.empty(); }
  const std::filesystem::path& folder() const { return folder_; }
  bool contains(const std::string& key) const;

 private:
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".safetensors"); }
  std::filesystem::path folder_;
  std::string kind_;
  struct Entry {
    NamedTensors tensors;
    bool stored = false;  // on disk as well
    int64_t used = 0;     // when, counted in calls
  };
  const NamedTensors& load(const std::string& key, NamedTensors tensors, bool stored);
  std::map<std::string, Entry> loaded_;
  int64_t bytes_ = 0, calls_ = 0;
};

}  // namespace lh
