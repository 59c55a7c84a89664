// GGUF files for tests, built byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lh::test {

class GgufFile {
 public:
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;  // rows first
    uint32_t type = 0;
    std::string data;
  };

  GgufFile& text(const std::string& key, const std::string& value);
  GgufFile& number(const std::string& key, uint32_t value);
  GgufFile& list(const std::string& key, const std::vector<int32_t>& values);
  GgufFile& words(const std::string& key, const std::vector<std::string>& values);
  GgufFile& add(Tensor tensor);
  std::string bytes() const;

  uint32_t version = 3;
  int64_t alignment = 32;

 private:
  void entry(const std::string& key, uint32_t kind);
  std::string metadata_;
  uint64_t entries_ = 0;
  std::vector<Tensor> tensors_;
};

// Little-endian bytes of a number, and with its length in front of a text.
template <class T>
std::string bytes_of_number(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string bytes_of_text(const std::string& text);

// The nearest codes of rows of 32 and more, in ggml's types: Q8_0 (8) or Q4_0 (2).
std::string encode_q8_0(const HostTensor& values);
std::string encode_q4_0(const HostTensor& values);

}  // namespace lh::test
