// fcntl's locks of open file descriptions: NFS and parallel file systems carry them to other machines.
#include "io/claims.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "io/file.h"

namespace lh {
namespace {

// Any offset will do: nothing is written there.
off_t byte_of(const std::string& key) {
  return static_cast<off_t>(std::stoull(sha256_hex(key).substr(0, 15), nullptr, 16));
}

}  // namespace

Claims::Claims(const std::filesystem::path& folder) : file_(folder / ".claims") {
  make_folder(folder);
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd_ < 0)
    fail(Code::resource,
         "{}: cannot be opened for writing: {}. Give this user write permission there, or choose another "
         "training_folder",
         file_.string(), std::strerror(errno));
}

Claims::~Claims() { ::close(fd_); }

bool Claims::set(const std::string& key, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte_of(key);
  lock.l_len = 1;
  if (::fcntl(fd_, F_OFD_SETLK, &lock) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  fail(Code::resource,
       "{}: cannot be locked: {}. Several processes share this cache: mount its file system with locks (Lustre: -o "
       "flock), or choose a training_folder on another one",
       file_.string(), std::strerror(errno));
}

bool Claims::take(const std::string& key) { return set(key, F_WRLCK); }
void Claims::release(const std::string& key) { set(key, F_UNLCK); }

}  // namespace lh
