// Whatever a GGUF file says, its tensors lie in it and do not overlap, and every value is decoded.
#include <algorithm>
#include <set>

#include "fuzz/targets.h"
#include "io/gguf.h"
#include "support/gguf_file.h"

namespace lh::fuzz {

namespace {

// Checked anew: extents as a sorted list, and what is read in one go and in two halves.
void check(const Gguf& file, size_t size) {
  std::set<std::string> names;
  std::vector<std::pair<int64_t, int64_t>> extents;
  for (const StoredTensor& t : file.tensors()) {
    require(names.insert(t.name).second, "names are unique");
    require(file.find(t.name) == &t, "a name finds its tensor");
    extents.emplace_back(t.offset, t.offset + stored_bytes(t));
    require(t.offset >= file.data_start() && extents.back().second <= static_cast<int64_t>(size),
            "a tensor lies in the file");
    const HostTensor whole = file.read(t.name);
    require(static_cast<int64_t>(whole.data.size()) == t.desc.bytes(), "a tensor is read whole");
    const int64_t half = t.desc.shape.numel() / 2 * dtype_size(t.desc.dtype);
    std::vector<std::byte> parts(whole.data.size());
    file.read_part(t, 0, std::span(parts).first(static_cast<size_t>(half)));
    file.read_part(t, half, std::span(parts).subspan(static_cast<size_t>(half)));
    require(std::ranges::equal(parts, whole.data), "parts are the whole");
  }
  std::ranges::sort(extents);
  for (size_t i = 1; i < extents.size(); ++i) require(extents[i].first >= extents[i - 1].second, "there is no overlap");
}

}  // namespace

bool gguf(Bytes input) {
  static MemoryFile memory;
  return taken([&] {
    const Gguf file(memory.holding(input));
    check(file, input.size());
  });
}

std::vector<std::string> gguf_seeds() {
  using test::GgufFile;
  const auto codes = [](size_t count) { return std::string(count, '\1'); };
  return {
      GgufFile().bytes(),
      GgufFile().add({"a", {2, 32}, 8, codes(68)}).bytes(),
      GgufFile()
          .text("general.architecture", "flux")
          .add({"a", {256}, 12, codes(144)})
          .add({"b", {3}, 0, codes(12)})
          .bytes(),
      GgufFile()
          .words("w", {"a", "bc"})
          .list("comfy.gguf.orig_shape.a", {8, 2, 2})
          .add({"a", {1, 32}, 2, codes(18)})
          .bytes(),
      GgufFile().number("general.alignment", 32).add({"h", {5}, 1, codes(10)}).bytes(),
  };
}

}  // namespace lh::fuzz
