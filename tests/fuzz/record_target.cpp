// Records: what was changed is never taken for what was written, and a whole record may still say anything.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/hash.h"
#include "encode/tensor_cache.h"
#include "fuzz/targets.h"
#include "io/record.h"
#include "train/state_files.h"

namespace lh::fuzz {
namespace {

using Metadata = std::map<std::string, std::string>;
const std::string key = "000000004";

// The file as write_record makes it, but for what `said` has of the seal already. Empty: `made` is no safetensors file.
std::string sealed(std::string_view kind, MemoryFile& memory, const std::string& made) {
  std::string out;
  taken([&] {
    const Safetensors file(memory.holding(bytes_of(made)));
    Metadata metadata = file.metadata();
    metadata.emplace("lora_host.record", kind);
    metadata.emplace("lora_host.key", key);
    metadata.erase("lora_host.digest");
    std::vector<std::pair<std::string, Desc>> entries;
    std::string data;
    for (const StoredTensor& t : file.tensors()) {
      entries.emplace_back(t.name, t.desc);
      data += text_of(file.read(t.name).data);
    }
    Sha256 hash;
    hash.update(safetensors_header(entries, metadata)).update(data);
    metadata["lora_host.digest"] = hash.hex();
    out = safetensors_header(entries, metadata) + data;
  });
  return out;
}

// A small record of this kind.
std::string example(std::string_view kind, MemoryFile& memory) {
  return sealed(
      kind, memory,
      safetensors_of(bytes_of(spelled(
          R"({"__metadata__":{"updates":"4","saves":"2,4"},"loss_scale":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
          R"("p/a":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},"none":{"dtype":"F32","shape":[0],"data_offsets":[16,16]}})",
          std::string("\0\0\x80\x47\0\0\0\0\0\0\x80\x3f\0\0\0\x40", 16)))));
}

// Edits of four bytes each: what, where (two bytes), a value.
std::string edited(std::string file, Bytes edits) {
  for (; edits.size() >= 4 && !file.empty(); edits = edits.subspan(4)) {
    const auto number = [&](size_t i) { return std::to_integer<size_t>(edits[i]); };
    const size_t at = (number(1) | number(2) << 8) % file.size();
    switch (number(0) % 5) {
      case 0: file[at] = static_cast<char>(file[at] ^ (1 << number(3) % 8)); break;
      case 1: file[at] = static_cast<char>(number(3)); break;
      case 2: file.resize(at); break;
      case 3: file.insert(at, 1, static_cast<char>(number(3))); break;
      default: file.erase(at, number(3) % 16); break;
    }
  }
  return file;
}

// Half of the inputs are edits of a good record, the others records that are sealed whatever they say.
struct Made {
  std::string file;
  bool edited = false;
};
Made make(std::string_view kind, MemoryFile& memory, const std::string& good, Bytes input) {
  if (input.empty()) return {};
  if (std::to_integer<int>(input.front()) % 2 == 0) return {edited(good, input.subspan(1)), true};
  return {sealed(kind, memory, safetensors_of(input.subspan(1)))};
}

bool finite(const HostTensor& t) { return count_non_finite(t.desc.dtype, t.data.data(), t.desc.shape.numel()) == 0; }

bool same(const Record& a, const Record& b) {
  return a.metadata == b.metadata && std::ranges::equal(a.tensors, b.tensors, [](const auto& x, const auto& y) {
           return x.first == y.first && x.second.desc == y.second.desc && x.second.data == y.second.data;
         });
}

std::vector<std::string> seeds_of_records() {
  const std::string scale(R"("loss_scale":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})");
  const std::string data("\0\0\x80\x47\0\0\0\0", 8);
  const auto with = [&](const std::string& metadata, const std::string& more = "") {
    return fmt::format("1{}", spelled(fmt::format(R"({{"__metadata__":{{{}}},{}{}}})", metadata, scale, more), data));
  };
  return {
      with(R"("updates":"4","saves":"2,4")"),
      with(R"("updates":"4","saves":"","fact.seed":"42","ema.updates":"3")"),
      with(R"("updates":"4","settings":"{}","changes":"0","lora_host.key":"000000005")"),
      with(R"("updates":"-4")"),
      with(R"("lora_host.record":"state/2")"),
      fmt::format("1{}", spelled(R"({"latent":{"dtype":"BF16","shape":[1,2,2],"data_offsets":[0,8]}})", data)),
      std::string("0\0\x10\0\x05", 5),
      std::string("0\1\xf8\0\0", 5),
      std::string("0\2\x80\0\0", 5),
  };
}

}  // namespace

bool record(Bytes input) {
  static MemoryFile memory;
  static const std::string good = example("test/1", memory);
  static const Record original = read_record(memory.holding(bytes_of(good)), {"test/1", key});
  const auto [file, edited] = make("test/1", memory, good, input);
  const Record found = read_record(memory.holding(bytes_of(file)), {"test/1", key});
  require(found.answer == RecordAnswer::ok || !found.why.empty(), "what is refused is explained");
  require(found.answer != RecordAnswer::absent && found.answer != RecordAnswer::unreadable,
          "a file that is read is there");
  if (found.answer != RecordAnswer::ok) return false;
  if (edited) require(same(found, original), "a record that was changed is not taken");
  const Safetensors stored(memory.path());
  require(stored.metadata().at("lora_host.record") == "test/1" && stored.metadata().at("lora_host.key") == key,
          "a record of another kind or key is not taken");
  return true;
}

std::vector<std::string> record_seeds() { return seeds_of_records(); }

bool state(Bytes input) {
  static MemoryFile memory;
  static MemoryFolder folder(key + ".safetensors");
  static const std::string good = example(state_kind, memory);
  folder.hold(bytes_of(make(state_kind, memory, good, input).file));
  return taken([&] {
    const auto found = find_state({.folder = folder.path()}, false);
    require(found.has_value(), "the only state is found, or it is said why not");
    const RunState& s = found->state;
    require(s.step == 4, "a state is of the step that its name says");
    require(s.updates >= 0 && s.changes >= 0 && s.averaged.value_or(0) >= 0, "counts are not negative");
    require(s.saves.empty() || *s.saves.begin() >= 0, "steps of saves are not negative");
    require(s.loss_scale[0] > 0 && std::isfinite(s.loss_scale[0]), "the loss scale is a positive number");
    for (const auto& [name, t] : found->record.tensors) require(finite(t), "no value is a NaN or an infinity");
  });
}

std::vector<std::string> state_seeds() { return seeds_of_records(); }

bool cache(Bytes input) {
  static MemoryFile memory;
  static MemoryFolder folder(key + ".safetensors");
  static const std::string good = example("latents/1", memory);
  folder.hold(bytes_of(make("latents/1", memory, good, input).file));
  TensorCache cache(folder.path(), "latents/1");
  // As the encoders check theirs: one tensor of a known name and type.
  const auto check = [](const NamedTensors& tensors) -> std::string {
    const auto latent = tensors.find("latent");
    if (tensors.size() != 1 || latent == tensors.end()) return "expected one tensor";
    return latent->second.desc == Desc{DType::bf16, {1, 2, 2}} && finite(latent->second) ? "" : "expected a latent";
  };
  const TensorCache::Entry found = cache.find(key, check);
  if (found != nullptr) require(found->at("latent").data.size() == 8, "an entry that is taken passed its check");
  return found != nullptr;
}

std::vector<std::string> cache_seeds() {
  std::vector<std::string> seeds = seeds_of_records();
  seeds.insert(seeds.begin(),
               fmt::format("1{}", spelled(R"({"latent":{"dtype":"BF16","shape":[1,2,2],"data_offsets":[0,8]}})",
                                          std::string(8, '\0'))));
  return seeds;
}

}  // namespace lh::fuzz
