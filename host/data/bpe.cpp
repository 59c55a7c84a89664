// Merges the symbols of a word by rank until none is left to merge (Sennrich et al. 2016).
#include "data/bpe.h"

#include <fmt/core.h>

#include <algorithm>
#include <queue>
#include <tuple>

namespace lh {
namespace {

// Bytes of the UTF-8 character that begins with `lead`.
size_t character_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

Bpe::Bpe(Vocabulary ids, Options options) : ids_(std::move(ids)), options_(std::move(options)) {}

std::optional<int32_t> Bpe::id_of(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

bool Bpe::add_merge(const std::string& left, const std::string& right) {
  if (right.size() < options_.inner_prefix.size()) return false;
  const auto left_id = id_of(left), right_id = id_of(right);
  const auto id = id_of(left + right.substr(options_.inner_prefix.size()));
  if (!left_id || !right_id || !id) return false;
  merges_.insert_or_assign(pair(*left_id, *right_id), Merge{rank_++, *id});
  return true;
}

bool Bpe::add_bytes(const std::string& symbol, std::vector<int32_t>& symbols) const {
  std::vector<int32_t> bytes;
  for (const char c : symbol) {
    const auto id = id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
    if (!id) return false;
    bytes.push_back(*id);
  }
  symbols.insert(symbols.end(), bytes.begin(), bytes.end());
  return true;
}

std::vector<int32_t> Bpe::symbols_of(const std::string& word) const {
  const auto unknown = id_of(options_.unknown);
  std::vector<int32_t> symbols;
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t size = std::min(character_size(word[at]), word.size() - at);
    std::string symbol = word.substr(at, size);
    if (at > 0) symbol.insert(0, options_.inner_prefix);
    at += size;
    if (at == word.size()) symbol += options_.end_suffix;
    if (const auto id = id_of(symbol)) {
      symbols.push_back(*id);
      after_unknown = false;
    } else if (options_.byte_fallback && add_bytes(symbol, symbols)) {
      after_unknown = false;
    } else if (unknown && !(after_unknown && options_.fuse_unknown)) {
      symbols.push_back(*unknown);
      after_unknown = true;
    }
  }
  return symbols;
}

void Bpe::encode(const std::string& word, std::vector<int32_t>& ids) const {
  if (const auto whole = options_.words_before_merges ? id_of(word) : std::nullopt) {
    ids.push_back(*whole);
  } else {
    merge(symbols_of(word), ids);
  }
}

void Bpe::merge(std::vector<int32_t> word, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;
    int64_t before, after;  // neighbours; -1 and size at the ends
  };
  const auto count = static_cast<int64_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (int64_t i = 0; i < count; ++i) symbols[static_cast<size_t>(i)] = {word[static_cast<size_t>(i)], i - 1, i + 1};
  const auto at = [&](int64_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  // Best merge first: lowest rank, then leftmost. An entry is stale once one of its symbols has changed.
  using Candidate = std::tuple<int32_t, int64_t, uint64_t, int32_t>;  // rank, position, pair, merged id
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](int64_t i) {
    if (i < 0 || at(i).after >= count) return;
    const uint64_t key = pair(at(i).id, at(at(i).after).id);
    if (const auto merge = merges_.find(key); merge != merges_.end())
      queue.emplace(merge->second.rank, i, key, merge->second.id);
  };
  for (int64_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const auto [rank, i, key, id] = queue.top();
    queue.pop();
    if (at(i).id < 0 || at(i).after >= count || pair(at(i).id, at(at(i).after).id) != key) continue;
    Symbol& gone = at(at(i).after);
    at(i).id = id;
    at(i).after = gone.after;
    if (gone.after < count) at(gone.after).before = i;
    gone.id = -1;
    offer(i);
    offer(at(i).before);
  }
  for (int64_t i = 0; i < count; i = at(i).after) ids.push_back(at(i).id);
}

}  // namespace lh
