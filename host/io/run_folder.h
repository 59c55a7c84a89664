// The output folder while a run owns it: locked against a second run, cleaned of what a killed one left.
#pragma once

#include <filesystem>

namespace lh {

class RunFolder {
 public:
  // Makes the folder, its state/ and samples/. A second run on it is an lh::Error(Code::resource) that names the owner.
  // The lock is a file that this program wrote, or an lh::Error: what a link points to is never written.
  explicit RunFolder(const std::filesystem::path& folder);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  // False once the folder was deleted or moved away, or another one stands in its place.
  bool there() const;

 private:
  std::filesystem::path file_;
  int lock_ = -1;
};

}  // namespace lh
