// Loading CLIP's vocabulary and merge list, and merging the bytes of a word.
#include "data/bpe.h"

#include <nlohmann/json.hpp>
#include <queue>
#include <string>
#include <tuple>

#include "core/error.h"
#include "io/file.h"

namespace lh {
namespace {

constexpr int64_t max_file_bytes = 16 << 20;
constexpr int64_t vocabulary = 49408, merge_count = 49152 - 256 - 2;

using Vocabulary = std::unordered_map<std::string, int32_t>;

Vocabulary read_vocabulary(const std::filesystem::path& path) {
  const auto json = nlohmann::json::parse(read_text(path, max_file_bytes), nullptr, false);
  if (!json.is_object())
    fail(Code::data, "tokenizer {}: expected a JSON object of token: id (the file is damaged; install it anew)",
         path.string());
  if (static_cast<int64_t>(json.size()) != vocabulary)
    fail(Code::data, "tokenizer {}: expected {} tokens, found {}", path.string(), vocabulary, json.size());
  Vocabulary ids;
  ids.reserve(json.size());
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_integer() || id < 0 || id >= vocabulary)
      fail(Code::data, "tokenizer {}: token \"{}\": expected an id from 0 to {}, found {}", path.string(), token,
           vocabulary - 1, id.dump());
    ids.emplace(token, id.get<int32_t>());
  }
  return ids;
}

// The vocabulary writes bytes as printable characters: printable Latin-1 as itself, the others from U+0100 on.
std::array<std::string, 256> byte_names() {
  std::array<std::string, 256> names;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    std::string& name = names[static_cast<size_t>(byte)];
    if (code < 0x80) {
      name = static_cast<char>(code);
    } else {
      name = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    }
  }
  return names;
}

}  // namespace

Bpe::Bpe(const std::filesystem::path& vocab_json, const std::filesystem::path& merges_txt) {
  const Vocabulary ids = read_vocabulary(vocab_json);
  const auto id_of = [&](const std::string& token) {
    const auto found = ids.find(token);
    return found == ids.end() ? -1 : found->second;
  };
  const std::array<std::string, 256> names = byte_names();
  for (size_t byte = 0; byte < 256; ++byte) {
    inner_[byte] = id_of(names[byte]);
    last_[byte] = id_of(names[byte] + "</w>");
    if (inner_[byte] < 0 || last_[byte] < 0)
      fail(Code::data, "tokenizer {}: there is no token for byte {} (not CLIP's vocabulary?)", vocab_json.string(),
           byte);
  }

  const std::string text = read_text(merges_txt, max_file_bytes);
  size_t at = text.starts_with("#version") ? text.find('\n') + 1 : 0;
  merges_.reserve(merge_count);
  std::string left, right;
  for (int32_t rank = 0; rank < merge_count; ++rank) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t blank = text.find(' ', at);
    if (at == 0 && rank > 0) break;
    if (at >= text.size() || blank >= end)
      fail(Code::data, "tokenizer {}: expected {} merges of two tokens, found {} (byte {})", merges_txt.string(),
           merge_count, rank, at);
    left.assign(text, at, blank - at);
    right.assign(text, blank + 1, end - blank - 1);
    const int32_t left_id = id_of(left), right_id = id_of(right), id = id_of(left + right);
    if (left_id < 0 || right_id < 0 || id < 0)
      fail(Code::data, "tokenizer {}: merge {} (\"{} {}\") is not in the vocabulary {}", merges_txt.string(), rank,
           left, right, vocab_json.string());
    merges_.emplace(pair(left_id, right_id), Merge{rank, id});
    at = end + 1;
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;
    int64_t before, after;  // neighbours; -1 and size at the ends
  };
  const auto count = static_cast<int64_t>(word.size());
  std::vector<Symbol> symbols(word.size());
  for (int64_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<size_t>(i)]);
    symbols[static_cast<size_t>(i)] = {i + 1 == count ? last_[byte] : inner_[byte], i - 1, i + 1};
  }
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
