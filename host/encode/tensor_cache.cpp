#include "encode/tensor_cache.h"

#include <spdlog/spdlog.h>

#include "core/error.h"
#include "io/record.h"

namespace lh {
namespace {

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.data.size());
  return bytes;
}

}  // namespace

bool TensorCache::contains(const std::string& key) const {
  return loaded_.contains(key) || (!folder_.empty() && std::filesystem::exists(file_of(key)));
}

const NamedTensors* TensorCache::find(const std::string& key, const Check& check) {
  if (const auto it = loaded_.find(key); it != loaded_.end()) {
    it->second.used = ++calls_;
    return &it->second.tensors;
  }
  if (folder_.empty()) return nullptr;
  Record record = read_record(file_of(key), {kind_, key});
  if (record.answer == RecordAnswer::absent) return nullptr;
  std::string why = record.why;
  if (record.answer == RecordAnswer::ok) why = check(record.tensors);
  if (why.empty()) return &load(key, std::move(record.tensors), true);
  if (record.answer == RecordAnswer::ok) why = fmt::format("{}: {}", file_of(key).string(), why);
  spdlog::warn("cache entry is made again: {}", why);
  return nullptr;
}

const NamedTensors& TensorCache::put(const std::string& key, NamedTensors tensors) {
  bool stored = false;
  if (!folder_.empty()) {
    make_folder(folder_);
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.desc, t.data.data()});
    using Type = std::filesystem::file_type;
    std::error_code unknown;
    const Type there = std::filesystem::symlink_status(file_of(key), unknown).type();
    if (there == Type::regular || there == Type::not_found || unknown) {  // what is not known, writing will tell
      write_record(file_of(key), {kind_, key}, list, {});
      stored = true;
    } else {
      spdlog::warn("{}: expected a file of the cache, found something else: move it away. The entry is kept in memory",
                   file_of(key).string());
    }
  }
  return load(key, std::move(tensors), stored);
}

const NamedTensors& TensorCache::load(const std::string& key, NamedTensors tensors, bool stored) {
  Entry& entry = loaded_[key];
  bytes_ += bytes_of(tensors) - bytes_of(entry.tensors);
  entry = {std::move(tensors), stored, ++calls_};
  return entry.tensors;
}

void TensorCache::keep(int64_t bytes) {
  if (bytes_ <= bytes) return;
  std::map<int64_t, std::string> by_use;
  for (const auto& [key, entry] : loaded_)
    if (entry.stored) by_use.emplace(entry.used, key);
  for (const auto& [used, key] : by_use) {
    if (bytes_ <= bytes) return;
    bytes_ -= bytes_of(loaded_.at(key).tensors);
    loaded_.erase(key);
  }
}

}  // namespace lh
