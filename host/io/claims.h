// Claims on names, one process at a time each, among all that share a folder, on one machine or on many: locks on bytes
// of one file, which end with the process that holds them, however it ends.
#pragma once

#include <filesystem>
#include <string>

namespace lh {

class Claims {
 public:
  // Throws lh::Error(Code::resource) where the folder's file system has no locks.
  explicit Claims(const std::filesystem::path& folder);
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;
  bool take(const std::string& key);  // false: another process has it
  void release(const std::string& key);

 private:
  bool set(const std::string& key, short type);
  std::filesystem::path file_;
  int fd_ = -1;
};

}  // namespace lh
