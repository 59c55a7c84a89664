// A TIFF block, as EXIF is kept in: numbers of either byte order, and the entries of its directories.
#pragma once

#include <cstdint>

#include "data/codecs.h"

namespace lh {

// Bounds-checked; a read past the end makes `ok` false and yields 0.
class TiffReader {
 public:
  explicit TiffReader(Bytes bytes) : bytes_(bytes) {
    little_ = at(0) == 'I';
    const uint8_t mark = little_ ? 'I' : 'M';
    ok = at(0) == mark && at(1) == mark && u16(2) == 42;
  }
  uint32_t u16(uint64_t offset) {
    return little_ ? at(offset) | at(offset + 1) << 8 : at(offset) << 8 | at(offset + 1);
  }
  uint32_t u32(uint64_t offset) {
    return little_ ? u16(offset) | u16(offset + 2) << 16 : u16(offset) << 16 | u16(offset + 2);
  }
  bool little() const { return little_; }
  // Where the entry of a tag lies, of 12 bytes; 0: the directory has none.
  uint64_t entry(uint64_t directory, uint32_t tag) {
    const uint32_t entries = u16(directory);
    for (uint32_t i = 0; i < entries && ok; ++i)
      if (const uint64_t entry = directory + 2 + 12ull * i; u16(entry) == tag) return ok ? entry : 0;
    return 0;
  }
  bool ok = true;

 private:
  uint32_t at(uint64_t offset) {
    if (offset < bytes_.size()) return std::to_integer<uint32_t>(bytes_[offset]);
    ok = false;
    return 0;
  }
  Bytes bytes_;
  bool little_ = false;
};

}  // namespace lh
