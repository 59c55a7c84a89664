// A file of tensors, in whatever format: what components, LoRAs and tools read.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/file.h"

namespace lh {

struct BlockFormat;  // io/gguf_blocks.h

struct StoredTensor {
  std::string name;
  Desc desc;                            // of the values that are read
  int64_t offset = 0;                   // from the start of the file
  const BlockFormat* blocks = nullptr;  // of codes that are decoded as they are read, to the float32 of `desc`
};

std::string_view stored_dtype_name(DType dtype);                // "F32", "BF16", ... as files spell it
std::string_view stored_type_name(const StoredTensor& tensor);  // likewise, or "Q4_K"
int64_t stored_bytes(const StoredTensor& tensor);               // in the file

class WeightFile {
 public:
  virtual ~WeightFile();
  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in file order
  const StoredTensor* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  void read(const StoredTensor& tensor, std::span<std::byte> out) const;
  // Bytes [offset, offset + out.size()) of the tensor's values.
  void read_part(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const;
  HostTensor read(const std::string& name) const;
  int64_t data_start() const { return data_start_; }
  // Identifies the content: SHA-256 over header, size and samples of the data, as hex. Cheap for files of any size.
  std::string fingerprint() const;

 protected:
  // `format` is the first word of what the fingerprint is over.
  WeightFile(InputFile file, std::string format);
  const InputFile& file() const { return file_; }
  void set_metadata(std::map<std::string, std::string> metadata) { metadata_ = std::move(metadata); }
  void set_data_start(int64_t data_start) { data_start_ = data_start; }
  void add(StoredTensor tensor);  // whose name is none of those before

 private:
  // Of codes: [offset, offset + out.size()) of the values that they decode to.
  virtual void decode(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const;

  InputFile file_;
  std::string format_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
  int64_t data_start_ = 0;
  struct Fingerprint;  // computed once
  std::unique_ptr<Fingerprint> fingerprint_;
};

using FilePtr = std::shared_ptr<const WeightFile>;

// A safetensors or GGUF file, told by its first bytes.
FilePtr open_weight_file(const std::filesystem::path& path);

}  // namespace lh
