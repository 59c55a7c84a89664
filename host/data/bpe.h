// Byte-level byte-pair encoding with CLIP's conventions: the last symbol of a word carries "</w>".
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lh {

class Bpe {
 public:
  // Throws lh::Error(Code::data) naming the file and line when the files are damaged or do not belong together.
  Bpe(const std::filesystem::path& vocab_json, const std::filesystem::path& merges_txt);
  // Appends the ids of one word's bytes.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  static uint64_t pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  std::unordered_map<uint64_t, Merge> merges_;
  std::array<int32_t, 256> inner_{}, last_{};  // ids of single bytes
};

}  // namespace lh
