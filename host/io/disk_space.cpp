#include "io/disk_space.h"

#include <sys/statvfs.h>

namespace lh {

std::optional<int64_t> free_disk_bytes(const std::filesystem::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0 || info.f_blocks == 0) return std::nullopt;
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

}  // namespace lh
