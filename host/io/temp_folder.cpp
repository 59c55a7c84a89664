#include "io/temp_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"
#include "io/file.h"

namespace lh {

namespace fs = std::filesystem;

TempFolder::TempFolder(const fs::path& target) : target_(target) {
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  make_folder(parent);
  std::error_code error;
  constexpr int most_tries = 1000;
  for (int tries = 0; tries < most_tries; ++tries) {
    path_ = parent / fmt::format("{}{}-folder-{}{}", temp_prefix, ::getpid(), tries, temp_suffix);
    if (fs::create_directory(path_, error) && lock()) return;
    if (error) break;
  }
  fail(Code::resource,
       "{}: a folder cannot be made beside it: {}. Choose another place, or give this user the right to "
       "write there",
       target.string(), error ? error.message() : "too many are there");
}

TempFolder::~TempFolder() {
  std::error_code none;
  if (!path_.empty()) fs::remove_all(path_, none);
  if (fd_ >= 0) ::close(fd_);
}

// False: a clean-up found the folder first and takes it away.
bool TempFolder::lock() {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd_ >= 0 && (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)) return true;  // not all have locks
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  return false;
}

void TempFolder::put_in_place() {
  std::error_code error;
  fs::rename(path_, target_, error);
  if (error) fail(Code::resource, "{}: the folder cannot be put in place: {}", target_.string(), error.message());
  path_.clear();
}

}  // namespace lh
