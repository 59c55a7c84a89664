// Makes the folder of a run and holds its lock.
#include "io/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/log.h"
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

[[noreturn]] void refuse_lock(const std::filesystem::path& file, const char* found) {
  fail(Code::resource,
       "{}: expected the lock of this folder, a file that holds the number of a process, found {}. It was not touched: "
       "move it away",
       file.string(), found);
}

// What is there may be anybody's: it is overwritten only where it is a lock.
void require_lock_file(const std::filesystem::path& file, int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) refuse_lock(file, "no file");
  if (info.st_nlink > 1) refuse_lock(file, "a file that has another name too");
  std::array<char, 64> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  const bool number = size >= 0 && size < static_cast<ssize_t>(text.size()) &&
                      std::all_of(text.data(), text.data() + size, [](char c) { return c >= '0' && c <= '9'; });
  if (!number) refuse_lock(file, "other text");
}

}  // namespace

RunFolder::RunFolder(const std::filesystem::path& folder) : file_(folder / ".lock") {
  make_folder(folder);
  const std::filesystem::path& file = file_;
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (lock_ < 0 && errno == ELOOP) refuse_lock(file, "a symbolic link");
  if (lock_ < 0)
    fail(Code::resource, "{}: cannot be opened for writing: {}. {}", file.string(), std::strerror(errno), unfit);
  try {
    require_lock_file(file, lock_);
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
    int removed = remove_leftovers(folder) + remove_leftovers(folder.parent_path());  // preflight tries there
    for (const char* part : {"state", "samples"}) {
      make_folder(folder / part);
      removed += remove_leftovers(folder / part);
    }
    if (removed > 0) log_info("{}: {} unfinished files of a killed run removed", folder.string(), removed);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

RunFolder::~RunFolder() { ::close(lock_); }

bool RunFolder::there() const {
  struct stat own {
  }, named{};
  if (::fstat(lock_, &own) != 0) return true;  // only an answer counts: a disk that fails is not a folder that is gone
  if (::lstat(file_.c_str(), &named) != 0) return errno != ENOENT && errno != ENOTDIR;
  return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

}  // namespace lh
