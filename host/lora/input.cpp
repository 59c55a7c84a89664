#include "lora/input.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "io/foreign_lora.h"
#include "io/lora_keys.h"
#include "io/lora_scale.h"
#include "io/lora_seal.h"

namespace lh {
namespace {

// What is derived from the tensors of a file, and what says their scale.
constexpr std::array derived{"ss_network_dim",   "ss_network_alpha",      "sshs_model_hash",
                             "sshs_legacy_hash", "modelspec.hash_sha256", adapter_metadata_entry,
                             "lora_host.digest", "lora_host.sealed_hash"};
// What kind of adapter it is: lora-host's own words, and kohya's, which go with them.
constexpr std::array kind{network_entry, network_options_entry, network_layers_entry};
constexpr std::array kohya_kind{"ss_network_module", "ss_network_args"};

}  // namespace

LoraFile open_lora(const std::filesystem::path& path) {
  LoraFile file = read_lora(path);
  const bool foreign = is_foreign(*file.file);
  if (!foreign && !is_lora(*file.file)) refuse_no_lora(*file.file);
  if (!foreign && !file.problems.empty())
    fail(Code::data, "{}: {} of its keys are not understood:{}\nlora-host verify FILE --model MODEL says what they are",
         path.string(), file.problems.size(), listed(file.problems));
  check_lora_seal(*file.file);
  require_finite(*file.file);
  return file;
}

std::map<std::string, std::string> carried_metadata(const WeightFile& file) {
  std::map<std::string, std::string> entries = file.metadata();
  for (const char* key : derived) entries.erase(key);
  if (!entries.contains(network_entry))
    for (const char* key : kohya_kind) entries.erase(key);
  return entries;
}

std::map<std::string, std::string> shared_metadata(const std::vector<std::filesystem::path>& files) {
  std::map<std::string, std::string> entries = carried_metadata(Safetensors(files.front()));
  for (const char* key : kind) entries.erase(key);
  for (const char* key : kohya_kind) entries.erase(key);
  for (const std::filesystem::path& path : files) {
    const Safetensors file(path);
    std::erase_if(entries, [&](const auto& item) {
      const auto other = file.metadata().find(item.first);
      return other == file.metadata().end() || other->second != item.second;
    });
  }
  return entries;
}

DType type_of(const LoraFile& file) {
  std::optional<DType> type;
  for (const StoredTensor& tensor : file.file->tensors()) {
    const auto key = split_lora_key(tensor.name);
    if (key && key->part == LoraPart::alpha) continue;
    if (type && *type != tensor.desc.dtype) return DType::f32;
    type = tensor.desc.dtype;
  }
  return type.value_or(DType::f32);
}

}  // namespace lh
