#include "io/weight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "core/error.h"
#include "core/hash.h"
#include "io/gguf.h"
#include "io/gguf_blocks.h"
#include "io/safetensors.h"
#include "io/stored_dtype.h"

namespace lh {

struct WeightFile::Fingerprint {
  std::once_flag once;
  std::string hex;
};

std::string_view stored_dtype_name(DType dtype) {
  for (const StoredDType& known : stored_dtypes)
    if (known.dtype == dtype) return known.name;
  return "?";
}

std::string_view stored_type_name(const StoredTensor& tensor) {
  return tensor.blocks != nullptr ? tensor.blocks->name : stored_dtype_name(tensor.desc.dtype);
}

int64_t stored_bytes(const StoredTensor& tensor) {
  return tensor.blocks != nullptr ? tensor.blocks->stored_bytes(tensor.desc.shape.numel()) : tensor.desc.bytes();
}

WeightFile::WeightFile(InputFile file, std::string format)
    : file_(std::move(file)), format_(std::move(format)), fingerprint_(std::make_unique<Fingerprint>()) {}

WeightFile::~WeightFile() = default;

void WeightFile::add(StoredTensor tensor) {
  index_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

const StoredTensor* WeightFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void WeightFile::read(const StoredTensor& tensor, std::span<std::byte> out) const {
  if (static_cast<int64_t>(out.size()) != tensor.desc.bytes())
    fail(Code::internal, "{}: tensor \"{}\" has {} bytes, the buffer {}", path().string(), tensor.name,
         tensor.desc.bytes(), out.size());
  read_part(tensor, 0, out);
}

void WeightFile::read_part(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  const int64_t bytes = tensor.desc.bytes();
  if (offset < 0 || offset > bytes || count > bytes - offset)
    fail(Code::internal, "{}: tensor \"{}\" has {} bytes, asked for {} at {}", path().string(), tensor.name, bytes,
         count, offset);
  if (tensor.blocks != nullptr) return decode(tensor, offset, out);
  file_.read(tensor.offset + offset, out);
}

HostTensor WeightFile::read(const std::string& name) const {
  const StoredTensor* tensor = find(name);
  if (tensor == nullptr) fail(Code::data, "{}: no tensor \"{}\" among its {}", path().string(), name, tensors_.size());
  HostTensor out(tensor->desc);
  read(*tensor, out.data);
  return out;
}

void WeightFile::decode(const StoredTensor& tensor, int64_t, std::span<std::byte>) const {
  fail(Code::internal, "{}: tensor \"{}\" has codes, which {} files do not", path().string(), tensor.name, format_);
}

std::string WeightFile::fingerprint() const {
  std::call_once(fingerprint_->once, [this] {
    constexpr int64_t edge = 1 << 20, block = 64 << 10, blocks = 64;
    Sha256 hash;
    std::vector<std::byte> buffer;
    const auto sample = [&](int64_t offset, int64_t count) {
      buffer.resize(static_cast<size_t>(count));
      file_.read(offset, buffer);
      hash.update(buffer);
    };
    const int64_t size = file_.size(), data = size - data_start_;
    hash.update(fmt::format("{} {} {}\n", format_, size, data_start_));
    for (int64_t at = 0; at < data_start_; at += edge) sample(at, std::min(edge, data_start_ - at));
    if (data <= 2 * edge + blocks * block) {
      for (int64_t at = data_start_; at < size; at += edge) sample(at, std::min(edge, size - at));
    } else {
      sample(data_start_, edge);
      for (int64_t i = 0; i < blocks; ++i)
        sample(data_start_ + edge + (data - 2 * edge - block) / (blocks - 1) * i, block);
      sample(size - edge, edge);
    }
    fingerprint_->hex = hash.hex();
  });
  return fingerprint_->hex;
}

FilePtr open_weight_file(const std::filesystem::path& path) {
  if (is_gguf(path)) return std::make_shared<const Gguf>(path);
  return std::make_shared<const Safetensors>(path);
}

}  // namespace lh
