#include "encode/tensor_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "io/record.h"

namespace lh {
namespace {

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, t] : tensors) bytes += t.desc.bytes();
  return bytes;
}

// "1,77,768=text\n" for each tensor.
std::string shapes_text(const NamedTensors& tensors) {
  std::string text;
  for (const auto& [name, t] : tensors) text += fmt::format("{}={}\n", fmt::join(t.desc.shape.dims(), ","), name);
  return text;
}

// Beside the folder, which holds entries alone.
std::filesystem::path seen_list(const std::filesystem::path& folder) {
  return folder.empty() ? folder : std::filesystem::path(folder.string() + ".seen");
}

}  // namespace

TensorCache::TensorCache(std::filesystem::path folder, std::string kind, int64_t most_kept)
    : folder_(std::move(folder)), kind_(std::move(kind)), most_kept_(most_kept), seen_(seen_list(folder_), kind_) {}

std::optional<std::map<std::string, Shape>> TensorCache::shapes(const std::string& key) {
  if (folder_.empty()) return std::nullopt;
  const std::optional<std::string> known = seen_.find(file_of(key));
  if (!known) return std::nullopt;
  std::map<std::string, Shape> shapes;
  std::istringstream lines(*known);
  for (std::string line; std::getline(lines, line);) {
    std::vector<int64_t> dims;
    const char *at = line.data(), *end = line.data() + line.size();
    while (at != end && *at != '=') {
      int64_t extent = 0;
      at = std::from_chars(at, end, extent).ptr;
      dims.push_back(extent);
      if (at != end && *at == ',') ++at;
    }
    shapes.emplace(std::string(at == end ? at : at + 1, end), Shape(std::move(dims)));
  }
  return shapes;
}

bool TensorCache::sound(const std::string& key, const Check& check) {
  if (kept_.contains(key) || (!folder_.empty() && seen_.find(file_of(key)))) return true;
  return find(key, check) != nullptr;
}

void TensorCache::will_need(const std::string& key) const {
  if (folder_.empty() || kept_.contains(key)) return;
  const int fd = ::open(file_of(key).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;  // find() will say what is wrong
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
  ::close(fd);
}

bool TensorCache::contains(const std::string& key) const {
  return kept_.contains(key) || (!folder_.empty() && std::filesystem::exists(file_of(key)));
}

TensorCache::Entry TensorCache::keep(const std::string& key, NamedTensors tensors, bool in_file) {
  if (const auto old = kept_.find(key); old != kept_.end()) {
    if (old->second.place != order_.end()) {
      kept_bytes_ -= bytes_of(*old->second.entry);
      order_.erase(old->second.place);
    }
    kept_.erase(old);
  }
  auto entry = std::make_shared<const NamedTensors>(std::move(tensors));
  if (!in_file) return kept_.emplace(key, Kept{entry, order_.end()}).first->second.entry;
  order_.push_front(key);
  kept_.emplace(key, Kept{entry, order_.begin()});
  kept_bytes_ += bytes_of(*entry);
  while (kept_bytes_ > most_kept_ && order_.size() > 1) {
    const auto last = kept_.find(order_.back());
    kept_bytes_ -= bytes_of(*last->second.entry);
    kept_.erase(last);
    order_.pop_back();
  }
  return entry;
}

TensorCache::Entry TensorCache::find(const std::string& key, const Check& check) {
  if (const auto it = kept_.find(key); it != kept_.end()) {
    if (it->second.place != order_.end()) order_.splice(order_.begin(), order_, it->second.place);
    return it->second.entry;
  }
  if (folder_.empty()) return nullptr;
  const std::optional<FileStamp> stamp = stamp_of(file_of(key));
  Record record = read_record(file_of(key), {kind_, key});
  if (record.answer == RecordAnswer::absent) return nullptr;
  std::string why = record.why;
  if (record.answer == RecordAnswer::ok) why = check(record.tensors);
  if (why.empty()) {
    if (stamp) seen_.note(file_of(key), *stamp, shapes_text(record.tensors));
    return keep(key, std::move(record.tensors), true);
  }
  seen_.forget(file_of(key));
  if (record.answer == RecordAnswer::ok) why = fmt::format("{}: {}", file_of(key).string(), why);
  log_warning("cache entry is made again: {}", why);
  return nullptr;
}

TensorCache::Entry TensorCache::put(const std::string& key, NamedTensors tensors) {
  bool in_file = false;
  if (!folder_.empty()) {
    make_folder(folder_);
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.desc, t.data.data()});
    using Type = std::filesystem::file_type;
    std::error_code unknown;
    const Type there = std::filesystem::symlink_status(file_of(key), unknown).type();
    if (there == Type::regular || there == Type::not_found || unknown) {  // what is not known, writing will tell
      write_record(file_of(key), {kind_, key}, list, {});
      in_file = true;
      if (const auto stamp = stamp_of(file_of(key))) seen_.note(file_of(key), *stamp, shapes_text(tensors));
    } else {
      log_warning("{}: expected a file of the cache, found something else: move it away. The entry is kept in memory",
                  file_of(key).string());
    }
  }
  return keep(key, std::move(tensors), in_file);
}

}  // namespace lh
