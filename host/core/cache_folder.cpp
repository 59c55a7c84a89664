#include "core/cache_folder.h"

#include <cstdlib>

namespace lh {

std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != 0) return std::filesystem::path(cache) / "lora-host";
  if (home != nullptr && *home != 0) return std::filesystem::path(home) / ".cache" / "lora-host";
  return {};
}

}  // namespace lh
