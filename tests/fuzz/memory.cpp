// Files that lie in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fuzz/fuzz.h"

namespace lh::fuzz {
namespace {

namespace fs = std::filesystem;

void must(bool done, const char* what) {
  if (!done) throw std::runtime_error(std::string("fuzz: ") + what + ": " + std::strerror(errno));
}

}  // namespace

MemoryFile::MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  must(fd_ >= 0, "a file in memory");
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

MemoryFile::~MemoryFile() { ::close(fd_); }

const fs::path& MemoryFile::holding(Bytes bytes) {
  must(::ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0, "a file in memory");
  must(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "a file in memory");
  return path_;
}

MemoryFolder::MemoryFolder(const std::string& name) {
  std::string folder = (fs::exists("/dev/shm") ? "/dev/shm/lora-fuzz-XXXXXX" : "/tmp/lora-fuzz-XXXXXX");
  must(::mkdtemp(folder.data()) != nullptr, "a folder");
  path_ = folder;
  fs::create_symlink(file_.path(), path_ / name);
}

MemoryFolder::~MemoryFolder() {
  std::error_code none;
  fs::remove_all(path_, none);
}

std::string spelled(std::string_view json, std::string_view data) {
  const auto length = static_cast<uint16_t>(json.size());
  return std::string{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)} + std::string(json) +
         std::string(data);
}

std::string safetensors_of(Bytes spelled) {
  const std::string_view text = text_of(spelled.size() < 2 ? Bytes() : spelled.subspan(2));
  size_t length =
      spelled.size() < 2 ? 0 : std::to_integer<size_t>(spelled[0]) | std::to_integer<size_t>(spelled[1]) << 8;
  length = std::min(length, text.size());
  std::string file(8, '\0');
  const uint64_t field = length;
  std::memcpy(file.data(), &field, 8);
  return file.append(text);
}

}  // namespace lh::fuzz
