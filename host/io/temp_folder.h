// A folder in the making, beside the place where it goes. As with files (io/file.h) what a killed process left is told
// from what another one is writing by a lock, and remove_leftovers() takes it away.
#pragma once

#include <filesystem>
#include <string_view>

namespace lh {

// Names of files and folders in the making begin and end so.
inline constexpr std::string_view temp_prefix = ".lora-host-", temp_suffix = ".tmp";

class TempFolder {
 public:
  // target: where it will go; nothing may be there but an empty folder when it does.
  explicit TempFolder(const std::filesystem::path& target);
  ~TempFolder();  // with all that is in it, unless it was put in place
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void put_in_place();

 private:
  bool lock();
  std::filesystem::path target_, path_;
  int fd_ = -1;
};

}  // namespace lh
