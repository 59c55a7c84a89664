// GGUF files, in which user interfaces keep quantised models. Tensors of codes are decoded as they are read, so that to
// everybody else they are float32.
#pragma once

#include "io/weight_file.h"

namespace lh {

class Gguf : public WeightFile {
 public:
  // Reads and checks the header: sizes, types, places without overlap in the file. Throws lh::Error(Code::data) with
  // path, tensor, offset, expected and found.
  explicit Gguf(const std::filesystem::path& path);

 private:
  void decode(const StoredTensor& tensor, int64_t offset, std::span<std::byte> out) const override;
};

// By its first bytes; a file that cannot be read is none.
bool is_gguf(const std::filesystem::path& path);

}  // namespace lh
