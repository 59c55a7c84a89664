// All file access of the host: checked reads, and writes that are either whole or absent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace lh {

// A system call failed while a file was read (Code::data): it says nothing about the content, which may be well.
class ReadError : public Error {
 public:
  ReadError(int error, const std::string& text) : Error(Code::data, text), error_(error) {}
  int error() const { return error_; }  // errno

 private:
  int error_;
};

// A file opened for reading; reads are positioned and complete or throw lh::Error naming path, offset and sizes, a
// ReadError where the system refused.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) noexcept;
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

std::string read_text(const std::filesystem::path& path, int64_t limit_bytes);

class OutputFile;  // sequential writer handed to publish_file's callback
// Temp file beside `path`, space reserved for `bytes`, write(out), fsync, verify(temp path), rename, fsync of the
// directory. On any failure the temp file is removed and whatever stood at `path` before stays untouched.
void publish_file(const std::filesystem::path& path, int64_t bytes, const std::function<void(OutputFile&)>& write,
                  const std::function<void(const std::filesystem::path&)>& verify = {});
// The same of a name that nothing has yet; false, and nothing is written, where something has it. Of several processes
// that want one name only one gets it.
bool publish_new_file(const std::filesystem::path& path, int64_t bytes, const std::function<void(OutputFile&)>& write);
class OutputFile {
 public:
  explicit OutputFile(int fd, std::string name, int64_t needed = 0)
      : fd_(fd), name_(std::move(name)), needed_(needed) {}
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  int64_t written() const { return written_; }

 private:
  int fd_;
  std::string name_;
  int64_t needed_, written_ = 0;
};

// Temp files of processes that died while they wrote into `folder`; those of living ones are locked and stay. Gives how
// many were removed; a folder that is not there has none.
int remove_leftovers(const std::filesystem::path& folder);

// Removes a file that is not needed any more. One that stays harms nobody: a warning names it, and false comes back.
// True where there was none.
bool remove_old(const std::filesystem::path& path);

// The folder and its parents. Throws lh::Error(Code::resource) that names it and what stands in the way.
void make_folder(const std::filesystem::path& folder);

// Text or bytes in one go.
void publish_text(const std::filesystem::path& path, std::string_view text);

// Fault injection for tests: called before every system call that changes the disk, with its name ("open", "fallocate",
// "write", "fsync", "rename", "fsync_dir"); a non-zero return becomes that errno.
using FaultHook = std::function<int(const char* call)>;
void set_fault_hook(FaultHook hook);
// Likewise before the calls that read: "open_read", "pread". With `path` the file that is read.
using ReadFaultHook = std::function<int(const char* call, const std::filesystem::path& path)>;
void set_read_fault_hook(ReadFaultHook hook);

}  // namespace lh
