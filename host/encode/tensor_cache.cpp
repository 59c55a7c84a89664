#include "encode/tensor_cache.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "core/error.h"
#include "io/record.h"

namespace lh {
namespace {

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, t] : tensors) bytes += t.desc.bytes();
  return bytes;
}

}  // namespace

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
  const auto entry = std::make_shared<const NamedTensors>(std::move(tensors));
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
  Record record = read_record(file_of(key), {kind_, key});
  if (record.answer == RecordAnswer::absent) return nullptr;
  std::string why = record.why;
  if (record.answer == RecordAnswer::ok) why = check(record.tensors);
  if (why.empty()) return keep(key, std::move(record.tensors), true);
  if (record.answer == RecordAnswer::ok) why = fmt::format("{}: {}", file_of(key).string(), why);
  spdlog::warn("cache entry is made again: {}", why);
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
    } else {
      spdlog::warn("{}: expected a file of the cache, found something else: move it away. The entry is kept in memory",
                   file_of(key).string());
    }
  }
  return keep(key, std::move(tensors), in_file);
}

}  // namespace lh
