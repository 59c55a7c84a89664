// A durable record: what the host writes to read it again, bound to what it is, which one it is, and every bit of it.
//
// A safetensors file whose metadata holds `lora_host.record`, the kind of record ("state/1"); `lora_host.key`, which
// one of its kind it is (a step, a content hash), so that a renamed or exchanged file is not taken for another;
// `lora_host.digests`, the SHA-256 of each tensor's data, in the order of the file; and `lora_host.digest`, that of the
// header without this entry (so of names, types, shapes, metadata and the digests). Records that were written before
// there were `digests` are read, too: their digest is of that header and of all data behind it. Training states and
// cache entries are records; LoRA files have a seal of their own (lora_seal.h).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"

namespace lh {

struct RecordId {
  std::string_view kind;
  std::string key;
};

enum class RecordAnswer {
  ok,
  absent,      // there is no such file
  unreadable,  // a system call failed (permission, a failing disk) or it is no file: the content may be well
  damaged,     // its bytes are not those that were written
  foreign,     // whole, but of another kind or key, or not written by this host
};

struct Record {
  RecordAnswer answer = RecordAnswer::absent;
  std::string why;  // unless ok: path, what was found, what was expected
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;      // without the seal
  std::shared_ptr<const Safetensors> file = {};     // of check_record: open, to read tensors of it
  std::map<std::string, std::string> digests = {};  // of its tensors
  // A tensor of the open file. Throws lh::Error(Code::data) where it is no longer what was checked.
  HostTensor read(const std::string& name) const;
};

// What a file is that is a record, as a part of a sentence: "a training state of step 200, ..."; empty: it is none.
std::string words_of_record(const WeightFile& file);

// Reads all of it. Throws only where memory ends.
Record read_record(const std::filesystem::path& path, const RecordId& id);
// Likewise, and keeps none of the tensors: each is shown to `look`, before it is known whether the record is whole.
using LookAtTensor = std::function<void(const std::string& name, const HostTensor& values)>;
Record check_record(const std::filesystem::path& path, const RecordId& id, const LookAtTensor& look);
// Published as a whole, or not at all, once it was read back and found to be what its seal says. The other two are for
// tensors that are not in memory all at once: metadata with the seal, and the file with the same tensors. `produce`
// gives each in its turn, as for stream_safetensors.
void write_record(const std::filesystem::path& path, const RecordId& id, const std::vector<TensorToWrite>& tensors,
                  std::map<std::string, std::string> metadata);
std::map<std::string, std::string> sealed_metadata(const RecordId& id,
                                                   const std::vector<std::pair<std::string, Desc>>& tensors,
                                                   std::map<std::string, std::string> metadata,
                                                   const ProduceTensor& produce);
void publish_sealed(const std::filesystem::path& path, const RecordId& id,
                    const std::vector<std::pair<std::string, Desc>>& tensors,
                    const std::map<std::string, std::string>& metadata, const ProduceTensor& produce);

}  // namespace lh
