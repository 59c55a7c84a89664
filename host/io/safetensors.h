// Strict reader and writer of the safetensors format.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/file.h"

namespace lh {

struct StoredTensor {
  std::string name;
  Desc desc;
  int64_t offset = 0;  // from the start of the file
};

class Safetensors {
 public:
  // Reads and checks the header: size limit, JSON without duplicate keys, known dtypes, offsets without overlap, hole
  // or trailing byte. Throws lh::Error(Code::data) with path, tensor, offset, expected and found.
  explicit Safetensors(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
  const StoredTensor* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  void read(const StoredTensor& tensor, std::span<std::byte> out) const;
  // Bytes [offset, offset + out.size()) of the tensor.
  void read_part(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const;
  HostTensor read(const std::string& name) const;
  int64_t data_start() const { return data_start_; }
  // Identifies the content: SHA-256 over header, size and samples of the data, as hex. Cheap for files of any size.
  std::string fingerprint() const;

 private:
  InputFile file_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
  int64_t data_start_ = 0;
  struct Fingerprint;  // computed once
  std::shared_ptr<Fingerprint> fingerprint_;
};

std::string_view stored_dtype_name(DType dtype);  // "F32", "BF16", ... as files spell it

struct TensorToWrite {
  std::string name;
  Desc desc;
  const void* data = nullptr;
};

// Published atomically and re-read before it takes the name. Tensors are written in the given order.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

// The same for data made on the way: produce(i, write) hands the bytes of tensor i, in pieces, to write.
using WriteBytes = std::function<void(std::span<const std::byte>)>;
using ProduceTensor = std::function<void(size_t index, const WriteBytes& write)>;
void stream_safetensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, Desc>>& tensors,
                        const std::map<std::string, std::string>& metadata, const ProduceTensor& produce);

// Length field, JSON and padding of a file with these tensors one after the other.
std::string safetensors_header(const std::vector<std::pair<std::string, Desc>>& tensors,
                               const std::map<std::string, std::string>& metadata);

}  // namespace lh
