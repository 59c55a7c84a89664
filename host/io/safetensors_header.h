// The JSON header of a safetensors file, entry by entry, before offsets are compared with each other.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lh {

struct HeaderEntry {
  std::string name;
  Desc desc;
  int64_t begin = 0, end = 0;  // from the start of the data
};

struct Header {
  std::vector<HeaderEntry> entries;  // in the header's order, names unique
  std::map<std::string, std::string> metadata;
};

// Throws lh::Error(Code::data); `path` is for the text.
Header parse_safetensors_header(const std::string& path, const std::string& json);

}  // namespace lh
