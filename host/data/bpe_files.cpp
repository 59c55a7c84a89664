// Vocabulary and merges from tokenizer.json, or from vocab.json and merges.txt.
#include "data/bpe_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"

namespace lh {
namespace {

constexpr int64_t max_id = (1 << 24) - 1;

Bpe::Vocabulary read_vocabulary(const JsonPart& part) {
  if (!part.value().is_object()) part.expected("an object of token: id");
  Bpe::Vocabulary ids;
  ids.reserve(part.value().size());
  std::vector<bool> taken;
  for (const auto& [token, value] : part.value().items()) {
    const bool number = value.is_number_unsigned() && value.get<uint64_t>() <= max_id;
    if (!number)
      part.wrong(fmt::format("token \"{}\": expected an id from 0 to {}, found {}", token, max_id, value.dump()));
    const auto id = value.get<size_t>();
    if (taken.size() <= id) taken.resize(std::max(id + 1, taken.size() * 2));
    if (taken[id]) part.wrong(fmt::format("token \"{}\": id {} is that of another token, too", token, id));
    taken[id] = true;
    ids.emplace(token, static_cast<int32_t>(id));
  }
  return ids;
}

Bpe::Options read_options(const JsonPart& model) {
  Bpe::Options out;
  const std::string type = model.text("type", "BPE");
  if (type != "BPE") model["type"].expected("BPE");
  if (const auto dropout = model.find("dropout"); dropout && dropout->value() != 0)
    dropout->expected("null or 0: a text always gives the same tokens");
  out.unknown = model.text("unk_token", "");
  out.inner_prefix = model.text("continuing_subword_prefix", "");
  out.end_suffix = model.text("end_of_word_suffix", "");
  out.fuse_unknown = model.flag("fuse_unk", false);
  out.byte_fallback = model.flag("byte_fallback", false);
  out.words_before_merges = model.flag("ignore_merges", false);
  return out;
}

Bpe make(const JsonPart& model, Bpe::Vocabulary ids) {
  Bpe::Options options = read_options(model);
  if (!options.unknown.empty() && !ids.contains(options.unknown))
    model["unk_token"].wrong(fmt::format("\"{}\" is not in the vocabulary", options.unknown));
  return {std::move(ids), std::move(options)};
}

// "a b": two tokens, neither of them empty.
bool add_line(Bpe& bpe, std::string_view line) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size()) return false;
  if (line.find(' ', blank + 1) != std::string_view::npos) return false;
  return bpe.add_merge(std::string(line.substr(0, blank)), std::string(line.substr(blank + 1)));
}

void check_count(const std::string& file, const char* what, int64_t expected, int64_t found) {
  if (expected > 0 && expected != found)
    fail(Code::data, "tokenizer {}: expected {} {}, found {} (install it anew)", file, expected, what, found);
}

}  // namespace

Bpe read_bpe_model(const JsonPart& model) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  Bpe bpe = make(model, read_vocabulary(model["vocab"]));
  const JsonPart merges = model["merges"];
  if (!merges.value().is_array()) merges.expected("a list");
  for (const nlohmann::json& item : merges.value()) {
    const bool two = item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string();
    if (!two && !item.is_string())
      merges.wrong(
          fmt::format("merge {}: expected \"a b\" or [\"a\", \"b\"], found {:.60}", bpe.merge_count(), item.dump()));
    const bool known = two ? bpe.add_merge(item[0].get<std::string>(), item[1].get<std::string>())
                           : add_line(bpe, item.get_ref<const std::string&>());
    if (!known)
      merges.wrong(fmt::format("merge {} ({:.60}) is not made of two tokens of the vocabulary into a third one",
                               bpe.merge_count(), item.dump()));
  }
  return bpe;
}

Bpe read_bpe_model(const JsonPart& model, const SourceFile& vocabulary, const SourceFile& merges, int64_t tokens,
                   int64_t merge_count) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges"});
  const std::string file = vocabulary.path.string();
  const nlohmann::json json = parse_json(vocabulary.bytes, file);
  Bpe bpe = make(model, read_vocabulary(JsonPart(json, file)));
  check_count(file, "tokens", tokens, bpe.token_count());
  const std::string_view text = merges.bytes;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool comment = at == 0 && line.starts_with("#version");
    if (!comment && !add_line(bpe, line))
      fail(Code::data, "tokenizer {}: merge {} (\"{:.60}\") is not made of two tokens of {} into a third one",
           merges.path.string(), bpe.merge_count(), line, vocabulary.path.string());
    at = end + 1;
  }
  check_count(merges.path.string(), "merges", merge_count, bpe.merge_count());
  return bpe;
}

}  // namespace lh
