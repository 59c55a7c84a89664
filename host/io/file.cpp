// Checked reads and atomic publication. Reading errors are the user's data, writing errors the machine's disk.
#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "core/log.h"
#include "io/disk_space.h"
#include "io/temp_folder.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

std::mutex hook_mutex;
std::shared_ptr<const FaultHook> fault_hook;
std::shared_ptr<const ReadFaultHook> read_fault_hook;

// The errno that a fault hook wants instead of a call; 0 to go on.
template <typename Hook, typename... Args>
int ask(const std::shared_ptr<const Hook>& slot, const Args&... args) {
  std::shared_ptr<const Hook> hook;
  {
    const std::lock_guard lock(hook_mutex);
    hook = slot;
  }
  return hook && *hook ? (*hook)(args...) : 0;
}

template <typename Hook>
void set_hook(std::shared_ptr<const Hook>& slot, Hook hook) {
  auto next = hook ? std::make_shared<const Hook>(std::move(hook)) : nullptr;
  const std::lock_guard lock(hook_mutex);
  slot.swap(next);
}

int injected(const char* call) { return ask(fault_hook, call); }

// A call that reads, again after EINTR; gives its result, -1 with errno set.
template <typename Call>
auto attempt_read(const char* name, const fs::path& path, Call call) {
  for (;;) {
    if (const int error = ask(read_fault_hook, name, path); error != 0) {
      if (error == EINTR) continue;
      errno = error;
      return decltype(call()){-1};
    }
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

std::string reason(int error) { return std::strerror(error); }  // NOLINT(concurrency-mt-unsafe): glibc's is safe

std::string directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path().string() : std::string(".");
}

// Of a file system that counts its files.
bool no_more_files(const std::string& directory) {
  struct statvfs info {};
  return ::statvfs(directory.c_str(), &info) == 0 && info.f_files > 0 && info.f_favail == 0;
}

// `needed`: bytes of the whole file, 0 when not known.
[[noreturn]] void disk_error(const fs::path& path, const char* call, int error, int64_t needed) {
  const std::string directory = directory_of(path), file = path.string();
  switch (error) {
    case ENOSPC:
    case EDQUOT: {
      if (no_more_files(directory))
        fail(
            Code::resource,
            "{}: {} failed: {}. The file system of {} has room and may not have more files (df -i). Remove some there, "
            "or choose another folder",
            file, call, reason(error), directory);
      const std::optional<int64_t> available = free_disk_bytes(directory);
      fail(Code::resource,
           "{}: {} failed: {}. The file needs {} bytes, {} has {} bytes free. Free space there, or choose another "
           "folder",
           file, call, reason(error), needed, directory,
           available ? std::to_string(*available) : "an unknown number of");
    }
    case EACCES:
    case EPERM:
    case EROFS:
      fail(Code::resource, "{}: {} failed: {}. Give this user write permission in {}, or choose another folder", file,
           call, reason(error), directory);
    case ENOENT:
    case ENOTDIR:
      fail(Code::resource, "{}: {} failed: {}. The folder {} must exist: create it, or choose another", file, call,
           reason(error), directory);
    case EISDIR:
    case ENOTEMPTY:
    case EEXIST:
      fail(Code::resource, "{}: {} failed: {}. A folder stands where the file should go: move it away", file, call,
           reason(error));
    case ENAMETOOLONG: fail(Code::resource, "{}: {} failed: {}. Use a shorter name", file, call, reason(error));
    case EIO:
      fail(Code::resource, "{}: {} failed: {}. The disk under {} may be failing: check it, or choose another", file,
           call, reason(error), directory);
    default: fail(Code::resource, "{}: {} failed: {}", file, call, reason(error));
  }
}

// Runs a system call unless the hook forbids it, again after EINTR; returns its errno, 0 for success.
template <typename Call>
int attempt(const char* name, Call call) {
  for (;;) {
    if (const int error = injected(name); error == EINTR)
      continue;
    else if (error != 0)
      return error;
    if (call() >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

// A new file beside its final place; unlinked unless released, closed in any case. It stays locked until then, so that
// remove_leftovers() can tell it from what a dead process left.
class TempFile {
 public:
  TempFile(const fs::path& target, int64_t needed) : target_(target) {
    static std::atomic<uint64_t> counter{0};
    for (int tries = 0;; ++tries) {
      path_ = target.parent_path() / fmt::format("{}{}-{}{}", temp_prefix, ::getpid(), counter++, temp_suffix);
      const int error = attempt("open", [&] {
        return fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      });
      if (error == 0 && lock()) return;
      if (error != 0 && error != EEXIST) disk_error(target, "creating a file", error, needed);
      if (tries == 1000) disk_error(target, "creating a file", EEXIST, needed);
    }
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() {
    if (fd_ >= 0) ::close(fd_);
    if (lock_ >= 0) ::close(lock_);
    if (!released_) ::unlink(path_.c_str());
  }
  int fd() const { return fd_; }
  const fs::path& path() const { return path_; }
  void release() { released_ = true; }
  void close() {
    if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) disk_error(target_, "close", errno, 0);
  }

 private:
  // False: a clean-up found the file first and takes it away. A second descriptor keeps the lock past close().
  bool lock() {
    const bool taken = ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;  // not every file system has locks
    if (taken)
      lock_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    else
      ::close(std::exchange(fd_, -1));
    return taken;
  }

  fs::path target_, path_;
  int fd_ = -1, lock_ = -1;
  bool released_ = false;
};

void reserve(const TempFile& temp, const fs::path& target, int64_t bytes) {
  if (bytes <= 0) return;
  // A reservation that fails takes what there is for a moment, from everyone.
  const std::optional<int64_t> available = free_disk_bytes(directory_of(target));
  if (available && *available < bytes) disk_error(target, "reserving space", ENOSPC, bytes);
  const int error = attempt("fallocate", [&] { return ::fallocate(temp.fd(), FALLOC_FL_KEEP_SIZE, 0, bytes); });
  if (error == EOPNOTSUPP || error == ENOSYS) return;  // such a file system tells at write
  if (error != 0) disk_error(target, "reserving space", error, bytes);
}

void sync_directory(const fs::path& target) {
  const std::string directory = directory_of(target);
  int fd = -1;
  do fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  const int open_error = errno;
  const int error = fd < 0 ? open_error : attempt("fsync_dir", [&] { return ::fsync(fd); });
  if (fd >= 0) ::close(fd);
  if (error == EINVAL || error == EOPNOTSUPP) return;  // file systems that order renames themselves
  if (error != 0)
    fail(Code::resource,
         "{}: the new file is in place, but syncing its folder {} failed: {}. It may not survive a power "
         "cut: check the disk",
         target.string(), directory, reason(error));
}

}  // namespace

void set_fault_hook(FaultHook hook) { set_hook(fault_hook, std::move(hook)); }
void set_read_fault_hook(ReadFaultHook hook) { set_hook(read_fault_hook, std::move(hook)); }

InputFile::InputFile(const fs::path& path) : path_(path) {
  fd_ = attempt_read("open_read", path, [&] {
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block
  });
  if (fd_ < 0) {
    const int error = errno;
    throw ReadError(error, fmt::format("{}: cannot be opened: {}", path.string(), reason(error)));
  }
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (known && S_ISREG(info.st_mode)) {
    size_ = info.st_size;
    return;
  }
  ::close(std::exchange(fd_, -1));
  const char* kind = !known                   ? "unreadable"
                     : S_ISDIR(info.st_mode)  ? "a folder"
                     : S_ISFIFO(info.st_mode) ? "a pipe"
                                              : "a device or socket";
  throw ReadError(S_ISDIR(info.st_mode) ? EISDIR : EINVAL,
                  fmt::format("{}: is {}, expected a regular file", path.string(), kind));
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}
InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)) {}
InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (offset < 0 || offset > size_ || count > size_ - offset)
    fail(Code::data, "{}: cannot read {} bytes at {}: the file has {} bytes", path_.string(), count, offset, size_);
  int64_t done = 0;
  while (done < count) {
    const ssize_t got = attempt_read("pread", path_, [&] {
      return ::pread(fd_, out.data() + done, static_cast<size_t>(count - done), offset + done);
    });
    if (got < 0) {
      const int error = errno;
      throw ReadError(error, fmt::format("{}: reading {} bytes at {} failed: {}", path_.string(), count - done,
                                         offset + done, reason(error)));
    }
    if (got == 0)
      throw ReadError(EAGAIN, fmt::format("{}: ends at {}, but had {} bytes when it was opened: another program is "
                                          "writing it",
                                          path_.string(), offset + done, size_));
    done += got;
  }
}

std::string read_text(const fs::path& path, int64_t limit_bytes) {
  const InputFile file(path);
  if (file.size() > limit_bytes)
    fail(Code::data, "{}: {} bytes, expected at most {}", path.string(), file.size(), limit_bytes);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t put = 0;
    const int error = attempt("write", [&] { return put = ::write(fd_, bytes.data(), bytes.size()); });
    if (error != 0) disk_error(name_, "write", error, needed_);
    written_ += put;
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

namespace {

// Filled, synced and closed.
void fill(TempFile& temp, const fs::path& path, int64_t bytes, const std::function<void(OutputFile&)>& write) {
  reserve(temp, path, bytes);
  OutputFile out(temp.fd(), path.string(), bytes);
  write(out);
  if (out.written() < bytes && ::ftruncate(temp.fd(), out.written()) != 0)  // gives reserved space back
    disk_error(path, "truncate", errno, bytes);
  // After a failed fsync the pages may count as clean: this file is given up, never synced again.
  if (const int error = attempt("fsync", [&] { return ::fsync(temp.fd()); }); error != 0)
    disk_error(path, "fsync", error, bytes);
  temp.close();
}

// rename(), where nothing stands at `to`; EEXIST where something does.
int rename_new(const fs::path& from, const fs::path& to) {
  const int error =
      attempt("rename", [&] { return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE); });
  if (error != EINVAL && error != ENOSYS) return error;
  std::error_code none;  // a file system that cannot promise it
  if (fs::exists(fs::symlink_status(to, none))) return EEXIST;
  return attempt("rename", [&] { return ::rename(from.c_str(), to.c_str()); });
}

}  // namespace

void publish_file(const fs::path& path, int64_t bytes, const std::function<void(OutputFile&)>& write,
                  const std::function<void(const fs::path&)>& verify) {
  TempFile temp(path, bytes);
  fill(temp, path, bytes, write);
  if (verify) verify(temp.path());
  if (const int error = attempt("rename", [&] { return ::rename(temp.path().c_str(), path.c_str()); }); error != 0)
    disk_error(path, "rename", error, bytes);
  temp.release();
  sync_directory(path);
}

bool publish_new_file(const fs::path& path, int64_t bytes, const std::function<void(OutputFile&)>& write) {
  TempFile temp(path, bytes);
  fill(temp, path, bytes, write);
  const int error = rename_new(temp.path(), path);
  if (error == EEXIST) return false;
  if (error != 0) disk_error(path, "rename", error, bytes);
  temp.release();
  sync_directory(path);
  return true;
}

int remove_leftovers(const fs::path& folder) {
  int removed = 0;
  std::error_code none;
  for (fs::directory_iterator entry(folder, none), end; !none && entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(temp_prefix) || !name.ends_with(temp_suffix)) continue;
    const char* path = entry->path().c_str();
    int fd = ::open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const bool is_folder = fd < 0 && errno == EISDIR;
    if (is_folder) fd = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    std::error_code error;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0)
      removed += is_folder ? fs::remove_all(entry->path(), error) > 0 && !error : ::unlink(path) == 0;
    ::close(fd);
  }
  return removed;
}

bool remove_old(const fs::path& path) {
  int error = 0;
  do error = ::unlink(path.c_str()) == 0 ? 0 : errno;
  while (error == EINTR);
  if (error == 0 || error == ENOENT) return true;
  log_warning("{}: could not be removed: {}. It is not needed any more", path.string(), reason(error));
  return false;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(Code::resource, "{}: the folder cannot be made: {}. Choose another, or give this user the right to make it",
         folder.string(), error.message());
  if (!fs::is_directory(folder, error))
    fail(Code::resource, "{}: a file stands where a folder should go: move it away, or choose another folder",
         folder.string());
}

void publish_text(const fs::path& path, std::string_view text) {
  publish_file(path, static_cast<int64_t>(text.size()), [&](OutputFile& out) { out.write(text); });
}

}  // namespace lh
