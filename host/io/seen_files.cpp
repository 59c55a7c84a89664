// One line for each file, in a record: its stamp, the lengths of its path and of what was noted, and both of them.
#include "io/seen_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/error.h"
#include "core/log.h"
#include "io/record.h"

namespace lh {
namespace {

constexpr const char* tensor_name = "files";

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec; }

// Takes a number and the blank behind it off the text; false where there is none.
template <class Number>
bool take(std::string_view& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

bool take(std::string_view& text, size_t length, std::string& out) {
  if (length > text.size()) return false;
  out = text.substr(0, length);
  text.remove_prefix(length);
  return true;
}

}  // namespace

std::optional<FileStamp> stamp_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileStamp{info.st_dev, info.st_ino, info.st_size, nanoseconds(info.st_ctim), nanoseconds(info.st_mtim)};
}

SeenFiles::SeenFiles(std::filesystem::path list, std::string kind) : list_(std::move(list)), kind_(std::move(kind)) {
  if (!list_.empty()) read();
}

// A list that is not whole is as good as none.
void SeenFiles::read() {
  Record record = read_record(list_, {"seen/1", kind_});
  const auto found = record.tensors.find(tensor_name);
  if (found == record.tensors.end()) return;
  std::string_view text(reinterpret_cast<const char*>(found->second.data.data()), found->second.data.size());
  while (!text.empty()) {
    Seen seen;
    std::string path;
    size_t path_length = 0, length = 0;
    FileStamp& s = seen.stamp;
    const bool whole = take(text, s.device) && take(text, s.inode) && take(text, s.size) && take(text, s.changed) &&
                       take(text, s.modified) && take(text, path_length) && take(text, length) &&
                       take(text, path_length, path) && take(text, length, seen.what) && text.starts_with('\n');
    if (!whole) return seen_.clear();
    text.remove_prefix(1);
    seen_.insert_or_assign(std::move(path), std::move(seen));
  }
}

std::optional<std::string> SeenFiles::find(const std::filesystem::path& path) {
  const std::optional<FileStamp> stamp = stamp_of(path);
  const std::lock_guard lock(mutex_);
  const auto it = seen_.find(path.native());
  if (!stamp || it == seen_.end() || it->second.stamp != *stamp) return std::nullopt;
  it->second.found = true;
  return it->second.what;
}

void SeenFiles::note(const std::filesystem::path& path, const FileStamp& stamp, std::string what) {
  if (stamp_of(path) != stamp) return;
  const std::lock_guard lock(mutex_);
  seen_.insert_or_assign(path.native(), Seen{stamp, std::move(what), true});
  changed_ = true;
}

void SeenFiles::forget(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  changed_ |= seen_.erase(path.native()) > 0;
}

void SeenFiles::save() try {
  const std::lock_guard lock(mutex_);
  if (list_.empty() || !changed_) return;
  std::string text;
  for (const auto& [path, seen] : seen_) {
    if (!seen.found && stamp_of(path) != seen.stamp) continue;
    const FileStamp& s = seen.stamp;
    text += fmt::format("{} {} {} {} {} {} {} {}{}\n", s.device, s.inode, s.size, s.changed, s.modified, path.size(),
                        seen.what.size(), path, seen.what);
  }
  make_folder(list_.parent_path());
  write_record(list_, {"seen/1", kind_}, {{tensor_name, {DType::u8, {static_cast<int64_t>(text.size())}}, text.data()}},
               {});
  changed_ = false;
} catch (const Error& e) {
  log_warning("{}: what was seen of files is not kept for the next run: {}", list_.string(), e.what());
}

}  // namespace lh
