#include "io/record.h"

#include <cerrno>

#include "core/error.h"
#include "core/hash.h"

namespace lh {
namespace {

constexpr const char* kind_entry = "lora_host.record";
constexpr const char* key_entry = "lora_host.key";
constexpr const char* digest_entry = "lora_host.digest";

using Metadata = std::map<std::string, std::string>;
using Entries = std::vector<std::pair<std::string, Desc>>;

// What the digest is taken over before the data.
std::string sealed_header(const Entries& tensors, Metadata metadata) {
  metadata.erase(digest_entry);
  return safetensors_header(tensors, metadata);
}

Entries entries_of(const Safetensors& file) {
  Entries entries;
  for (const StoredTensor& t : file.tensors()) entries.emplace_back(t.name, t.desc);
  return entries;
}

std::string entry(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

Record not_ok(RecordAnswer answer, std::string why) { return {.answer = answer, .why = std::move(why)}; }

// take: is given each tensor.
Record check_sealed(const std::filesystem::path& path, const RecordId& id,
                    const std::function<void(const std::string& name, HostTensor&& values)>& take) {
  try {
    const auto opened = std::make_shared<const Safetensors>(path);
    const Safetensors& file = *opened;
    const std::string kind = entry(file.metadata(), kind_entry), key = entry(file.metadata(), key_entry);
    if (kind.empty() || entry(file.metadata(), digest_entry).empty())
      return not_ok(RecordAnswer::foreign,
                    fmt::format("{}: expected a record of kind {}, found a safetensors file that has no seal of this "
                                "program",
                                path.string(), id.kind));
    Record record{.answer = RecordAnswer::ok, .metadata = file.metadata(), .file = opened};
    Sha256 hash;
    hash.update(sealed_header(entries_of(file), file.metadata()));
    for (const StoredTensor& t : file.tensors()) {
      HostTensor values = file.read(t.name);
      hash.update(values.data);
      take(t.name, std::move(values));
    }
    if (hash.hex() != entry(file.metadata(), digest_entry))
      fail(Code::data,
           "{}: the content does not match its checksum: it was changed after it was written, or the disk is failing",
           path.string());
    if (kind != id.kind || key != id.key)
      return not_ok(RecordAnswer::foreign, fmt::format("{}: expected {} {}, found {} {}: the file was renamed or "
                                                       "exchanged",
                                                       path.string(), id.kind, id.key, kind, key));
    for (const char* own : {kind_entry, key_entry, digest_entry}) record.metadata.erase(own);
    return record;
  } catch (const ReadError& e) {
    return not_ok(e.error() == ENOENT ? RecordAnswer::absent : RecordAnswer::unreadable, e.what());
  } catch (const Error& e) {
    return not_ok(RecordAnswer::damaged, e.what());
  }
}

}  // namespace

Record read_record(const std::filesystem::path& path, const RecordId& id) {
  NamedTensors tensors;
  Record record = check_sealed(
      path, id, [&](const std::string& name, HostTensor&& values) { tensors.emplace(name, std::move(values)); });
  if (record.answer == RecordAnswer::ok) record.tensors = std::move(tensors);
  record.file.reset();
  return record;
}

Record check_record(const std::filesystem::path& path, const RecordId& id, const LookAtTensor& look) {
  return check_sealed(path, id, [&](const std::string& name, HostTensor&& values) { look(name, values); });
}

void write_record(const std::filesystem::path& path, const RecordId& id, const std::vector<TensorToWrite>& tensors,
                  Metadata metadata) {
  Entries entries;
  for (const TensorToWrite& t : tensors) entries.emplace_back(t.name, t.desc);
  const auto produce = [&](size_t i, const WriteBytes& write) {
    write({static_cast<const std::byte*>(tensors[i].data), static_cast<size_t>(tensors[i].desc.bytes())});
  };
  stream_safetensors(path, entries, sealed_metadata(id, entries, std::move(metadata), produce), produce);
}

Metadata sealed_metadata(const RecordId& id, const Entries& tensors, Metadata metadata, const ProduceTensor& produce) {
  metadata[kind_entry] = id.kind;
  metadata[key_entry] = id.key;
  Sha256 hash;
  hash.update(sealed_header(tensors, metadata));
  for (size_t i = 0; i < tensors.size(); ++i) produce(i, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
  metadata[digest_entry] = hash.hex();
  return metadata;
}

}  // namespace lh
