// The header of a GGUF file (docs/gguf.md of ggml): metadata and the list of tensors, entry by entry, before their
// places are compared with each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/file.h"

namespace lh {

struct GgufEntry {
  std::string name;
  Shape shape;        // rows first, unlike in the file; or the one that metadata says it had before it was flattened
  int64_t row = 0;    // elements that lie in one line, which blocks divide
  uint32_t type = 0;  // ggml_type
  int64_t begin = 0;  // from the start of the data
};

struct GgufHeader {
  std::vector<GgufEntry> entries;               // in the header's order, names unique
  std::map<std::string, std::string> metadata;  // texts, and numbers as texts; lists are left out
  int64_t data_start = 0;
};

// Throws lh::Error(Code::data) with path and offset.
GgufHeader read_gguf_header(const InputFile& file);

}  // namespace lh
