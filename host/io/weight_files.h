// The files that hold one set of weights: a single file, or one of the sets in a diffusers folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/weight_file.h"

namespace lh {

struct StoredKey {
  FilePtr file;
  const StoredTensor* tensor = nullptr;
};
using StoredKeys = std::map<std::string, StoredKey>;

// Opens every file once, however many components live in it.
class FileCache {
 public:
  FilePtr open(const std::filesystem::path& path);

 private:
  std::map<std::filesystem::path, FilePtr> files_;
};

// Files of a folder: plain single file or shards, else those of a variant (".fp16."); empty when there are none.
// Throws when shards are missing or only pickles are there.
std::vector<std::filesystem::path> weight_set(const std::filesystem::path& folder);

// All keys of a set of files; throws when two files have the same.
StoredKeys stored_keys(const std::vector<FilePtr>& files);

}  // namespace lh
