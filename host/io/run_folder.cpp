// Makes the folder of a run and holds its lock.
#include "io/run_folder.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "core/error.h"
#include "io/file.h"

namespace lh {
namespace {

constexpr const char* unfit = "Give this user write permission there, or choose another training_folder";

// The process that the lock file names. Its owner writes that just after locking.
std::string owner_of(const std::filesystem::path& lock) {
  for (int tries = 0; tries < 20; ++tries) {
    if (std::string owner = read_text(lock, 64); !owner.empty()) return owner;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "unknown";
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& folder) {
  make_folder(folder);
  const std::filesystem::path file = folder / ".lock";
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    fail(Code::resource, "{}: cannot be opened for writing: {}. {}", file.string(), std::strerror(errno), unfit);
  try {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK)
        fail(Code::resource, "{}: cannot be locked: {}. Choose a training_folder on another file system", file.string(),
             std::strerror(errno));
      fail(Code::resource, "{}: another run is writing there (process {}). Stop it, or give this run another `name`",
           folder.string(), owner_of(file));
    }
    const std::string owner = std::to_string(::getpid());
    if (::ftruncate(lock_, 0) != 0 || ::pwrite(lock_, owner.data(), owner.size(), 0) < 0)
      fail(Code::resource, "{}: cannot be written: {}. {}", file.string(), std::strerror(errno), unfit);
    int removed = remove_leftovers(folder);
    for (const char* part : {"state", "samples"}) {
      make_folder(folder / part);
      removed += remove_leftovers(folder / part);
    }
    if (removed > 0) spdlog::info("{}: {} unfinished files of a killed run removed", folder.string(), removed);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() { ::close(lock_); }

}  // namespace lh
