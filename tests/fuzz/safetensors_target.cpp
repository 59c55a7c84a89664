// Whatever a safetensors file says, its tensors lie in it, fill it and do not overlap.
#include <algorithm>
#include <set>

#include "fuzz/targets.h"
#include "io/safetensors.h"

namespace lh::fuzz {

// Checked anew and in another way: sizes in 128 bits, extents as a set.
void check_layout(const Safetensors& file, size_t size) {
  std::set<std::string> names;
  std::vector<std::pair<int64_t, int64_t>> extents;
  std::vector<std::pair<std::string, Desc>> entries;
  for (const StoredTensor& t : file.tensors()) {
    require(names.insert(t.name).second, "names are unique");
    __int128 bytes = 1;  // of elements of one byte
    for (const int64_t dim : t.desc.shape.dims()) {
      require(dim >= 0, "dimensions are not negative");
      require(bytes <= INT64_MAX, "sizes fit 64 bits");
      bytes *= dim;
    }
    bytes *= dtype_size(t.desc.dtype);
    require(bytes == t.desc.bytes(), "the size is that of shape and type");
    require(t.offset >= file.data_start() && bytes <= static_cast<int64_t>(size) - t.offset,
            "a tensor lies in the file");
    extents.emplace_back(t.offset, t.offset + static_cast<int64_t>(bytes));
    entries.emplace_back(t.name, t.desc);
    require(file.find(t.name) == &t, "a name finds its tensor");
    require(static_cast<int64_t>(file.read(t.name).data.size()) == t.desc.bytes(), "a tensor is read whole");
  }
  std::ranges::sort(extents);
  int64_t end = file.data_start();
  for (const auto& [begin, finish] : extents) {
    require(begin == end, "there is no hole and no overlap");
    end = finish;
  }
  require(end == static_cast<int64_t>(size), "the file ends where the data does");
}

bool safetensors(Bytes input) {
  static MemoryFile memory;
  // Every fourth input is the file itself, length field and all; a header that starts with a brace is one that is
  // spelled.
  const bool whole = !input.empty() && std::to_integer<int>(input.back()) % 4 == 3;
  const std::string made = whole ? std::string(text_of(input)) : safetensors_of(input);
  return taken([&] {
    const Safetensors file(memory.holding(bytes_of(made)));
    check_layout(file, made.size());
    require(file.fingerprint().size() == 64, "a fingerprint is a SHA-256");
  });
}

std::vector<std::string> safetensors_seeds() {
  const auto bytes = [](size_t count) { return std::string(count, '\0'); };
  return {
      spelled(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", bytes(24)),
      spelled(
          R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"b":{"dtype":"U8","shape":[2,1],"data_offsets":[6,8]}})",
          bytes(8)),
      spelled(R"({"__metadata__":{"k":"v"},"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}})", ""),
      spelled(R"({"__metadata__":{"modelspec.title":"\u00e9\n"},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}} )",
              bytes(8)),
      spelled("{}", ""),
      safetensors_header({{"a", Desc{DType::f16, {1}}}, {"n", Desc{DType::f8_e4m3, {1}}}}, {}) + std::string(3, '\x03'),
  };
}

}  // namespace lh::fuzz
