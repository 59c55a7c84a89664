#include "encode/tensor_cache.h"

#include <spdlog/spdlog.h>

#include "core/error.h"
#include "io/record.h"

namespace lh {

bool TensorCache::contains(const std::string& key) const {
  return loaded_.contains(key) || (!folder_.empty() && std::filesystem::exists(file_of(key)));
}

const NamedTensors* TensorCache::find(const std::string& key, const Check& check) {
  if (const auto it = loaded_.find(key); it != loaded_.end()) return &it->second;
  if (folder_.empty()) return nullptr;
  Record record = read_record(file_of(key), {kind_, key});
  if (record.answer == RecordAnswer::absent) return nullptr;
  std::string why = record.why;
  if (record.answer == RecordAnswer::ok) why = check(record.tensors);
  if (why.empty()) return &(loaded_[key] = std::move(record.tensors));
  if (record.answer == RecordAnswer::ok) why = fmt::format("{}: {}", file_of(key).string(), why);
  spdlog::warn("cache entry is made again: {}", why);
  return nullptr;
}

const NamedTensors& TensorCache::put(const std::string& key, NamedTensors tensors) {
  if (!folder_.empty()) {
    make_folder(folder_);
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.desc, t.data.data()});
    using Type = std::filesystem::file_type;
    std::error_code unknown;
    const Type there = std::filesystem::symlink_status(file_of(key), unknown).type();
    if (there == Type::regular || there == Type::not_found || unknown)  // what is not known, writing will tell
      write_record(file_of(key), {kind_, key}, list, {});
    else
      spdlog::warn("{}: expected a file of the cache, found something else: move it away. The entry is kept in memory",
                   file_of(key).string());
  }
  return loaded_[key] = std::move(tensors);
}

}  // namespace lh
