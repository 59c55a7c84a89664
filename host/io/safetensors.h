// Strict reader and writer of the safetensors format.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/weight_file.h"

namespace lh {

class Safetensors : public WeightFile {
 public:
  // Reads and checks the header: size limit, JSON without duplicate keys, known dtypes, offsets without overlap, hole
  // or trailing byte. Throws lh::Error(Code::data) with path, tensor, offset, expected and found.
  explicit Safetensors(const std::filesystem::path& path);
};

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
