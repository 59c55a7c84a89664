// Files for tests: a folder that goes away, and safetensors files built byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/safetensors.h"

namespace lh::test {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "lora-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Every `what` is `by`.
inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string get(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Length field, JSON as given, `data` zero bytes.
inline std::string raw_file(const std::string& json, size_t data) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + json + std::string(data, '\0');
}

// Text of the lh::Error that `action` throws; "" when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

struct Given {
  std::string name;
  HostTensor tensor;
};

inline HostTensor floats(Shape shape, const std::vector<float>& values) {
  return HostTensor::from_floats(std::move(shape), values);
}

// first, first + 1, ... in the shape; exact in every float type while small.
inline HostTensor counting(Shape shape, float first = 0) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (float& v : values) v = first++;
  return HostTensor::from_floats(std::move(shape), values);
}

inline HostTensor as_type(const HostTensor& tensor, DType dtype) {
  HostTensor out(Desc{dtype, tensor.desc.shape});
  convert(tensor.desc.dtype, tensor.data.data(), dtype, out.data.data(), tensor.desc.shape.numel());
  return out;
}

inline void write_file(const std::filesystem::path& path, const std::vector<Given>& tensors,
                       const std::map<std::string, std::string>& metadata = {}) {
  std::filesystem::create_directories(path.parent_path());
  std::vector<TensorToWrite> list;
  for (const Given& t : tensors) list.push_back({t.name, t.tensor.desc, t.tensor.data.data()});
  write_safetensors(path, list, metadata);
}

}  // namespace lh::test
