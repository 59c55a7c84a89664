// Where `lora-host sample` puts what it makes. Nothing that is there is replaced unless the user says --force: a name
// that is taken is refused before the work begins, and in a folder numbers go on.
#pragma once

#include <filesystem>
#include <vector>

#include "data/sample_file.h"
#include "sample/sampling.h"

namespace lh {

class PictureFiles {
 public:
  // out: a file, or of several pictures the name that theirs begin with, or a folder; empty: the working directory.
  // Makes the folder. Throws lh::Error(Code::config) for a name of another format and for one that is taken.
  PictureFiles(std::filesystem::path out, const std::vector<SampleRequest>& requests, bool force);
  // The file of a request, by its number among them.
  std::filesystem::path write(size_t index, const Sampled& sampled);

 private:
  std::filesystem::path path(int64_t number, SampleKind kind) const;
  std::filesystem::path out_;
  bool in_folder_, several_, force_;
  int64_t first_ = 0;  // number of the first one
};

}  // namespace lh
