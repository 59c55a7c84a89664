#include "encode/tensor_cache.h"

#include <spdlog/spdlog.h>

#include "core/error.h"
#include "io/safetensors.h"

namespace lh {

bool TensorCache::contains(const std::string& key) const {
  return loaded_.contains(key) || (!folder_.empty() && std::filesystem::exists(file_of(key)));
}

const NamedTensors* TensorCache::find(const std::string& key) {
  if (const auto it = loaded_.find(key); it != loaded_.end()) return &it->second;
  if (folder_.empty() || !std::filesystem::exists(file_of(key))) return nullptr;
  try {
    const Safetensors file(file_of(key));
    NamedTensors tensors;
    for (const StoredTensor& t : file.tensors()) tensors[t.name] = file.read(t.name);
    return &(loaded_[key] = std::move(tensors));
  } catch (const Error& e) {
    spdlog::warn("cache entry is made again: {}", e.what());
    return nullptr;
  }
}

const NamedTensors& TensorCache::put(const std::string& key, NamedTensors tensors) {
  if (!folder_.empty()) {
    make_folder(folder_);
    std::vector<TensorToWrite> list;
    for (const auto& [name, t] : tensors) list.push_back({name, t.desc, t.data.data()});
    write_safetensors(file_of(key), list, {});
  }
  return loaded_[key] = std::move(tensors);
}

}  // namespace lh
