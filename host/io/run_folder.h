// The output folder while a run owns it: locked against a second run, cleaned of what a killed one left.
#pragma once

#include <filesystem>

namespace lh {

class RunFolder {
 public:
  // Makes the folder, its state/ and samples/. A second run on it is an lh::Error(Code::resource) that names the owner.
  explicit RunFolder(const std::filesystem::path& folder);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  int lock_ = -1;
};

}  // namespace lh
