#include "io/record.h"

#include <cerrno>

#include "core/error.h"
#include "core/hash.h"
#include "io/cut_short.h"

namespace lh {
namespace {

constexpr const char* kind_entry = "lora_host.record";
constexpr const char* key_entry = "lora_host.key";
constexpr const char* digest_entry = "lora_host.digest";
constexpr const char* digests_entry = "lora_host.digests";
constexpr size_t digest_digits = 64;

using Metadata = std::map<std::string, std::string>;
using Entries = std::vector<std::pair<std::string, Desc>>;

// What the digest is taken over; of records without `digests`, before the data.
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

[[noreturn]] void fail_changed(const std::filesystem::path& path, const char* since) {
  fail(Code::data,
       "{}: the content does not match its checksum: it was changed after it was {}, or the disk is failing",
       path.string(), since);
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
    const std::string digests = entry(file.metadata(), digests_entry);
    const bool by_tensor = file.metadata().contains(digests_entry);
    Sha256 seal;
    seal.update(sealed_header(entries_of(file), file.metadata()));
    bool same = !by_tensor || digests.size() == digest_digits * file.tensors().size();
    for (size_t i = 0; same && i < file.tensors().size(); ++i) {
      const std::string& name = file.tensors()[i].name;
      HostTensor values = file.read(name);
      std::string& digest = record.digests[name] = sha256_hex(values.data);
      if (by_tensor)
        same = digests.compare(i * digest_digits, digest_digits, digest) == 0;
      else
        seal.update(values.data);
      take(name, std::move(values));
    }
    if (!same || seal.hex() != entry(file.metadata(), digest_entry)) fail_changed(path, "written");
    if (kind != id.kind || key != id.key)
      return not_ok(RecordAnswer::foreign, fmt::format("{}: expected {} {}, found {} {}: the file was renamed or "
                                                       "exchanged",
                                                       path.string(), id.kind, id.key, kind, key));
    for (const char* own : {kind_entry, key_entry, digest_entry, digests_entry}) record.metadata.erase(own);
    return record;
  } catch (const ReadError& e) {
    return not_ok(e.error() == ENOENT ? RecordAnswer::absent : RecordAnswer::unreadable, e.what());
  } catch (const CutShort& e) {
    return not_ok(RecordAnswer::damaged, e.found());
  } catch (const Error& e) {
    return not_ok(RecordAnswer::damaged, e.what());
  }
}

}  // namespace

HostTensor Record::read(const std::string& name) const {
  HostTensor values = file->read(name);
  if (sha256_hex(values.data) != digests.at(name)) fail_changed(file->path(), "checked");
  return values;
}

std::string words_of_record(const WeightFile& file) {
  const auto kind = file.metadata().find(kind_entry), key = file.metadata().find(key_entry);
  if (kind == file.metadata().end() || key == file.metadata().end()) return {};
  return kind->second.starts_with("state/")
             ? fmt::format(
                   "a training state of step {}, from which a run goes on with --resume. The LoRA of that step "
                   "is the file with this number in the folder above",
                   key->second)
             : std::string("an entry of a run's cache of encoded images and texts");
}

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
  publish_sealed(path, id, entries, sealed_metadata(id, entries, std::move(metadata), produce), produce);
}

Metadata sealed_metadata(const RecordId& id, const Entries& tensors, Metadata metadata, const ProduceTensor& produce) {
  metadata[kind_entry] = id.kind;
  metadata[key_entry] = id.key;
  std::string& digests = metadata[digests_entry];
  for (size_t i = 0; i < tensors.size(); ++i) {
    Sha256 hash;
    produce(i, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
    digests += hash.hex();
  }
  metadata[digest_entry] = sha256_hex(sealed_header(tensors, metadata));
  return metadata;
}

void publish_sealed(const std::filesystem::path& path, const RecordId& id, const Entries& tensors,
                    const Metadata& metadata, const ProduceTensor& produce) {
  const std::string header = safetensors_header(tensors, metadata);
  auto total = static_cast<int64_t>(header.size());
  for (const auto& [name, desc] : tensors) total = checked_add(total, desc.bytes());
  const auto write = [&](OutputFile& out) {
    out.write(header);
    for (size_t i = 0; i < tensors.size(); ++i) produce(i, [&](std::span<const std::byte> bytes) { out.write(bytes); });
  };
  publish_file(path, total, write, [&](const std::filesystem::path& temp) {
    const Record record = check_record(temp, id, [](const std::string&, const HostTensor&) {});
    const bool same = record.answer == RecordAnswer::ok && record.file->metadata() == metadata;
    if (same) return;
    fail(Code::resource, "{}: read back after writing, {}. Memory or disk is faulty; the file was not put in place",
         path.string(), record.answer == RecordAnswer::ok ? "the metadata differs" : record.why);
  });
}

}  // namespace lh
