// Edits of safetensors files: header and data each as what they are.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz.h"
#include "fuzz/mutate.h"
#include "io/stored_dtype.h"

namespace lh::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t most_data = 512;  // of a file that is mended

// A number of some type, at a multiple of its size: zero, one, the smallest, the largest, infinities, NaN.
std::string edit_data(std::string data, Random& random) {
  struct Number {
    size_t size;
    uint64_t bits;
  };
  constexpr std::array numbers{
      Number{1, 0},          Number{1, 0x7f},       Number{1, 0x80},       Number{1, 0xff},       Number{2, 0x7c00},
      Number{2, 0xfe00},     Number{2, 0x3f80},     Number{2, 0x7f80},     Number{2, 0xffc0},     Number{2, 0x0001},
      Number{4, 0},          Number{4, 0x3f800000}, Number{4, 0xbf800000}, Number{4, 0x7f800000}, Number{4, 0xff800000},
      Number{4, 0x7fc00000}, Number{4, 0x7f7fffff}, Number{4, 0x00000001}, Number{4, 0x80000000}, Number{8, INT64_MAX},
      Number{8, ~0ULL},      Number{8, 1ULL << 63}};
  const auto [size, bits] = numbers[below(numbers.size(), random)];
  if (data.size() < size) return data;
  std::memcpy(data.data() + below(data.size() / size, random) * size, &bits, size);
  return data;
}

// Powers of two for dimensions, whose product, in elements or bytes, is at an edge of 32 or 64 bits.
std::string edit_shape(const std::string& json, Random& random) {
  Json header = Json::parse(json, nullptr, false);
  if (!header.is_object() || header.empty()) return json;
  auto& entry = std::next(header.begin(), static_cast<std::ptrdiff_t>(below(header.size(), random))).value();
  if (!entry.is_object() || !entry.contains("shape")) return json;
  constexpr std::array edges{31, 32, 63, 64};
  auto bits = edges[below(edges.size(), random)] - static_cast<int>(below(4, random));  // of elements of 1 to 8 bytes
  Json dims = Json::array();
  while (bits > 0 && dims.size() < 4) {
    const int part = std::min(1 + static_cast<int>(below(63, random)), bits);
    dims.push_back(uint64_t{1} << part);
    bits -= part;
  }
  entry["shape"] = dims;
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Bytes of a tensor; -1: no tensor, or not a small one.
int64_t bytes_of_entry(const Json& entry) {
  if (!entry.is_object() || !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("dtype"))
    return -1;
  const auto dtype =
      std::ranges::find_if(stored_dtypes, [&](const auto& known) { return entry["dtype"] == known.name; });
  if (dtype == stored_dtypes.end()) return -1;
  int64_t bytes = dtype_size(dtype->dtype);
  for (const Json& dim : entry["shape"]) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > most_data) return -1;
    bytes *= dim.get<int64_t>();
    if (bytes > most_data) return -1;
  }
  return bytes;
}

// One behind the other in the header's order. What is no small tensor keeps its offsets.
void mend(std::string& json, std::string& data) {
  Json header = Json::parse(json, nullptr, false);
  if (!header.is_object()) return;
  int64_t at = 0;
  for (auto& [name, entry] : header.items()) {
    const int64_t bytes = bytes_of_entry(entry);
    if (bytes < 0) continue;
    entry["data_offsets"] = {at, at + bytes};
    at += bytes;
  }
  json = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  data.resize(static_cast<size_t>(std::min(at, 8 * most_data)));
}

}  // namespace

std::string edit_safetensors(const std::string& input, Random& random) {
  const std::string file = safetensors_of(bytes_of(input));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::string json = file.substr(8, length), data = file.substr(8 + length);
  switch (below(8, random)) {
    case 0:
    case 1: data = edit_data(std::move(data), random); break;
    case 2: json = edit_shape(json, random); break;
    default: json = edit_text(json, random);
  }
  if (below(2, random) == 0) mend(json, data);
  return spelled(json, data);
}

std::string edit_sealed(const std::string& input, Random& random) {
  return input.empty() ? input : input.front() + edit_safetensors(input.substr(1), random);
}

}  // namespace lh::fuzz
