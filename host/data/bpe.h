// Byte-pair encoding of one word: its symbols are merged in pairs, the pair that was learned first in front.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lh {

class Bpe {
 public:
  using Vocabulary = std::unordered_map<std::string, int32_t>;
  struct Options {
    std::string unknown;               // token of symbols that the vocabulary lacks; empty: they are left out
    std::string inner_prefix;          // of every symbol but the first of a word
    std::string end_suffix;            // of the last symbol of a word
    bool fuse_unknown = false;         // neighbouring unknown symbols become one
    bool byte_fallback = false;        // unknown symbols become tokens <0x00> to <0xFF>
    bool words_before_merges = false;  // a word that is a token is never merged
  };
  // `unknown` must be in the vocabulary.
  Bpe(Vocabulary ids, Options options);

  // The next merge; false where one of the three tokens is not in the vocabulary.
  bool add_merge(const std::string& left, const std::string& right);
  int64_t merge_count() const { return static_cast<int64_t>(rank_); }
  std::optional<int32_t> id_of(const std::string& token) const;
  int64_t token_count() const { return static_cast<int64_t>(ids_.size()); }
  const Vocabulary& vocabulary() const { return ids_; }
  const Options& options() const { return options_; }
  // Appends the ids of one word.
  void encode(const std::string& word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  static uint64_t pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  std::vector<int32_t> symbols_of(const std::string& word) const;
  bool add_bytes(const std::string& symbol, std::vector<int32_t>& symbols) const;
  void merge(std::vector<int32_t> symbols, std::vector<int32_t>& ids) const;
  Vocabulary ids_;
  Options options_;
  int32_t rank_ = 0;
  std::unordered_map<uint64_t, Merge> merges_;
};

}  // namespace lh
