#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "core/parallel.h"
#include "io/cut_short.h"
#include "io/gguf_blocks.h"
#include "io/gguf_header.h"

namespace lh {
namespace {

constexpr int64_t codes_at_once = 16 << 20, least_blocks = 1 << 10;  // bytes in memory, and blocks of a thread

StoredTensor stored(const std::string& path, const GgufEntry& entry, int64_t data_start) {
  StoredTensor tensor{
      .name = entry.name, .desc = {DType::f32, entry.shape}, .offset = checked_add(data_start, entry.begin)};
  if (const auto plain = plain_type(entry.type)) {
    tensor.desc.dtype = *plain;
    return tensor;
  }
  tensor.blocks = block_format(entry.type);
  if (tensor.blocks == nullptr)
    fail(Code::data,
         "{}: tensor \"{}\" is {}, expected one of {}. Use a file of the model in one of those, such as Q8_0", path,
         entry.name, gguf_type_text(entry.type), known_gguf_types());
  if (entry.row % tensor.blocks->elements != 0)
    fail(Code::data, "{}: tensor \"{}\" is {} in rows of {}, expected a multiple of {}. The file is damaged", path,
         entry.name, tensor.blocks->name, entry.row, tensor.blocks->elements);
  return tensor;
}

// Tensors lie in the file and apart from each other.
void check_layout(const WeightFile& file, int64_t size) {
  std::vector<const StoredTensor*> sorted;
  for (const StoredTensor& tensor : file.tensors()) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, &StoredTensor::offset);
  const StoredTensor* previous = nullptr;
  int64_t end = file.data_start();
  for (const StoredTensor* tensor : sorted) {
    if (tensor->offset < end)
      fail(Code::data, "{}: tensor \"{}\" starts at byte {}, in \"{}\", which ends at {}. The file is damaged",
           file.path().string(), tensor->name, tensor->offset, previous->name, end);
    end = checked_add(tensor->offset, stored_bytes(*tensor));
    if (end > size)
      throw CutShort(fmt::format("{}: file ends at {} bytes but tensor \"{}\" ends at {}. The file is cut short",
                                 file.path().string(), size, tensor->name, end));
    previous = tensor;
  }
}

// Values [first, first + out.size()) of blocks that lie one after the other.
void decode_blocks(const BlockFormat& format, const std::byte* codes, int64_t first, std::span<float> out) {
  const int64_t last = first + static_cast<int64_t>(out.size());
  in_threads((last + format.elements - 1) / format.elements, least_blocks, [&](int64_t from, int64_t to) {
    std::array<float, longest_block> values;
    for (int64_t block = from; block < to; ++block) {
      const int64_t begin = block * format.elements, end = begin + format.elements;
      const auto* const own = reinterpret_cast<const uint8_t*>(codes) + block * format.bytes;
      if (begin >= first && end <= last) {
        format.decode(own, out.data() + (begin - first));
        continue;
      }
      const int64_t lower = std::max(begin, first), upper = std::min(end, last);
      format.decode(own, values.data());
      std::copy(values.begin() + (lower - begin), values.begin() + (upper - begin), out.begin() + (lower - first));
    }
  });
}

}  // namespace

Gguf::Gguf(const std::filesystem::path& path) : WeightFile(InputFile(path), "gguf") {
  GgufHeader header = read_gguf_header(file());
  set_data_start(std::min(header.data_start, file().size()));
  set_metadata(std::move(header.metadata));
  for (const GgufEntry& entry : header.entries) add(stored(path.string(), entry, header.data_start));
  check_layout(*this, file().size());
}

void Gguf::decode(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const {
  constexpr auto size = static_cast<int64_t>(sizeof(float));
  const auto count = static_cast<int64_t>(out.size()) / size;
  if (offset % size != 0 || count * size != static_cast<int64_t>(out.size()))
    fail(Code::internal, "{}: tensor \"{}\": asked for {} bytes at {}, which are no whole values", path().string(),
         tensor.name, out.size(), offset);
  const BlockFormat& format = *tensor.blocks;
  const bool aligned = reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0;
  std::vector<std::byte> codes;
  std::vector<float> values;  // where `out` can have no floats
  for (int64_t done = 0; done < count;) {
    const int64_t first = offset / size + done, block = first / format.elements, skipped = first % format.elements;
    const int64_t some = std::min(count - done, codes_at_once / format.bytes * format.elements - skipped);
    codes.resize(static_cast<size_t>((skipped + some + format.elements - 1) / format.elements * format.bytes));
    file().read(tensor.offset + block * format.bytes, codes);
    std::byte* const to = out.data() + done * size;
    if (!aligned) values.resize(static_cast<size_t>(some));
    decode_blocks(format, codes.data(), skipped,
                  {aligned ? reinterpret_cast<float*>(to) : values.data(), static_cast<size_t>(some)});
    if (!aligned) std::memcpy(to, values.data(), static_cast<size_t>(some * size));
    done += some;
  }
}

bool is_gguf(const std::filesystem::path& path) {
  std::array<char, 4> magic{};
  std::ifstream file(path, std::ios::binary);
  return file.read(magic.data(), magic.size()) && std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace lh
