#include "io/lora_seal.h"

#include <algorithm>

#include "core/error.h"
#include "core/hash.h"
#include "io/lora_read.h"
#include "io/record.h"

namespace lh {
namespace {

constexpr const char* digest_entry = "lora_host.digest";
constexpr const char* sealed_hash_entry = "lora_host.sealed_hash";
constexpr const char* model_hash_entry = "sshs_model_hash";  // of the data alone

std::string entry(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

std::string hash_of(const WeightFile& file, const std::string& before) {
  Sha256 hash;
  hash.update(before);
  std::vector<std::byte> buffer;
  for (const StoredTensor& t : file.tensors())
    for (int64_t at = 0, end = t.desc.bytes(); at < end; at += static_cast<int64_t>(buffer.size())) {
      buffer.resize(static_cast<size_t>(std::min<int64_t>(end - at, 4 << 20)));
      file.read_part(t, at, buffer);
      hash.update(buffer);
    }
  return hash.hex();
}

}  // namespace

void seal_lora(const std::vector<TensorToWrite>& tensors, std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, Desc>> entries;
  for (const TensorToWrite& t : tensors) entries.emplace_back(t.name, t.desc);
  Sha256 hash;
  hash.update(safetensors_header(entries, {}));
  for (const TensorToWrite& t : tensors)
    hash.update({static_cast<const std::byte*>(t.data), static_cast<size_t>(t.desc.bytes())});
  metadata[digest_entry] = hash.hex();
  metadata[sealed_hash_entry] = entry(metadata, model_hash_entry);
}

std::string data_hash(const WeightFile& file) { return hash_of(file, ""); }

void check_lora_seal(const WeightFile& file) {
  if (!words_of_record(file).empty()) refuse_no_lora(file);  // whose digest is another one
  const std::string digest = entry(file.metadata(), digest_entry), own = entry(file.metadata(), model_hash_entry);
  if (digest.empty()) return;
  if (own != entry(file.metadata(), sealed_hash_entry) && own == data_hash(file)) return;
  std::vector<std::pair<std::string, Desc>> entries;
  for (const StoredTensor& t : file.tensors()) entries.emplace_back(t.name, t.desc);
  if (hash_of(file, safetensors_header(entries, {})) != digest)
    fail(
        Code::data,
        "{}: the content does not match its checksum: its tensors were changed after they were written, or the disk is "
        "failing. Where a program was meant to change them, take `{}` out of the file's metadata",
        file.path().string(), digest_entry);
}

}  // namespace lh
