#include "support/gguf_file.h"

#include <algorithm>
#include <cmath>

#include "core/float_formats.h"

namespace lh::test {
namespace {

constexpr uint32_t kind_u32 = 4, kind_i32 = 5, kind_string = 8, kind_array = 9;

std::string half(float value) { return bytes_of_number(f16_from_float(value)); }

// `codes` of 32 values, given the largest of their magnitudes.
template <class Codes>
std::string blocks_of(const HostTensor& values, const Codes& codes) {
  std::string out;
  const std::span<const float> all = values.as<float>();
  for (size_t first = 0; first < all.size(); first += 32) {
    const std::span block = all.subspan(first, 32);
    float largest = 0;
    for (const float v : block) largest = std::max(largest, std::abs(v));
    out += codes(block, largest);
  }
  return out;
}

}  // namespace

std::string bytes_of_text(const std::string& text) { return bytes_of_number(uint64_t{text.size()}) + text; }

void GgufFile::entry(const std::string& key, uint32_t kind) {
  metadata_ += bytes_of_text(key) + bytes_of_number(kind);
  ++entries_;
}

GgufFile& GgufFile::text(const std::string& key, const std::string& value) {
  entry(key, kind_string);
  metadata_ += bytes_of_text(value);
  return *this;
}

GgufFile& GgufFile::number(const std::string& key, uint32_t value) {
  entry(key, kind_u32);
  metadata_ += bytes_of_number(value);
  return *this;
}

GgufFile& GgufFile::list(const std::string& key, const std::vector<int32_t>& values) {
  entry(key, kind_array);
  metadata_ += bytes_of_number(kind_i32) + bytes_of_number(uint64_t{values.size()});
  for (const int32_t value : values) metadata_ += bytes_of_number(value);
  return *this;
}

GgufFile& GgufFile::words(const std::string& key, const std::vector<std::string>& values) {
  entry(key, kind_array);
  metadata_ += bytes_of_number(kind_string) + bytes_of_number(uint64_t{values.size()});
  for (const std::string& value : values) metadata_ += bytes_of_text(value);
  return *this;
}

GgufFile& GgufFile::add(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return *this;
}

std::string GgufFile::bytes() const {
  std::string out = "GGUF" + bytes_of_number(version) + bytes_of_number(uint64_t{tensors_.size()}) +
                    bytes_of_number(entries_) + metadata_;
  const auto pad = [&](std::string& to) {
    to.resize((to.size() + static_cast<size_t>(alignment) - 1) / static_cast<size_t>(alignment) *
              static_cast<size_t>(alignment));
  };
  std::string data;
  for (const Tensor& tensor : tensors_) {
    pad(data);
    out += bytes_of_text(tensor.name) + bytes_of_number(static_cast<uint32_t>(tensor.dims.size()));
    for (auto dim = tensor.dims.rbegin(); dim != tensor.dims.rend(); ++dim) out += bytes_of_number(*dim);
    out += bytes_of_number(tensor.type) + bytes_of_number(uint64_t{data.size()});
    data += tensor.data;
  }
  pad(out);
  return out + data;
}

std::string encode_q8_0(const HostTensor& values) {
  return blocks_of(values, [](std::span<const float> block, float largest) {
    const float d = largest / 127;
    std::string out = half(d);
    for (const float v : block) out += static_cast<char>(d == 0 ? 0 : std::lround(v / d));
    return out;
  });
}

std::string encode_q4_0(const HostTensor& values) {
  return blocks_of(values, [](std::span<const float> block, float largest) {
    const float d = largest / 7;
    std::string out = half(d);
    const auto code = [&](size_t i) { return d == 0 ? 8 : std::clamp<long>(std::lround(block[i] / d) + 8, 0, 15); };
    for (size_t i = 0; i < 16; ++i) out += static_cast<char>(code(i) | code(i + 16) << 4);
    return out;
  });
}

}  // namespace lh::test
