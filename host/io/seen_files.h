// What was found out about files by reading all of them, kept for the next run so that it need only look at their
// sizes, times and places on the disk (inodes). A file that differs in one of these was changed or replaced: nothing is
// known of it. What is known here saves a look, and decides nothing that a later reader of the file does not check.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace lh {

struct FileStamp {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, changed = 0, modified = 0;  // bytes; nanoseconds
  auto operator<=>(const FileStamp&) const = default;
};
// Nothing where there is no such file, or it is none.
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);

// Any thread may look and note.
class SeenFiles {
 public:
  // `list`: the record in which it is kept, which need not be there; empty: it is kept in memory only. kind: what is
  // noted, with a revision ("images/1").
  SeenFiles(std::filesystem::path list, std::string kind);
  // What was noted of the file as it is.
  std::optional<std::string> find(const std::filesystem::path& path);
  // stamp: from before the file was read. Nothing is noted where the file has changed since.
  void note(const std::filesystem::path& path, const FileStamp& stamp, std::string what);
  void forget(const std::filesystem::path& path);
  // Writes the list where it has changed, without files that are not what they were. A list that cannot be written is a
  // warning: the next run looks at all files again.
  void save();

 private:
  struct Seen {
    FileStamp stamp;
    std::string what;
    bool found = false;  // as it is, since this was made
  };
  void read();
  std::filesystem::path list_;
  std::string kind_;
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;  // by path
  bool changed_ = false;
};

}  // namespace lh
