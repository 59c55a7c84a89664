// Byte-pair encoding as a tokenizer.json describes it: added tokens are cut out, the texts between them changed, cut
// into words, and each word encoded.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "data/added_tokens.h"
#include "data/bpe_files.h"
#include "data/text_rules.h"
#include "data/token_model.h"

namespace lh {
namespace {

struct Rules {
  std::vector<TextStep> normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  std::vector<int32_t> begin, end;
};

int32_t token_id(const JsonPart& part) { return static_cast<int32_t>(part.number(0, INT32_MAX - 1)); }

// Ids of the special tokens before and behind the text: [{"SpecialToken": {"id": name}}, {"Sequence": {"id": "A"}},
// ...].
void read_template(const JsonPart& part, Rules& out) {
  part.only({"type", "single", "pair", "special_tokens"});
  bool behind = false;
  for (const JsonPart& item : part["single"].items()) {
    item.only({"SpecialToken", "Sequence"});
    if (item.find("Sequence")) {
      if (behind) item.wrong("the text is there twice");
      behind = true;
      continue;
    }
    const std::string name = item["SpecialToken"]["id"].text();
    for (const JsonPart& id : part["special_tokens"][name.c_str()]["ids"].items())
      (behind ? out.end : out.begin).push_back(token_id(id));
  }
}

void read_post_processor(const JsonPart& part, int depth, Rules& out) {
  const std::string type = part["type"].text();
  if (type == "Sequence") {
    part.only({"type", "processors"});
    if (depth == max_rule_depth) part.wrong("there are too many sequences inside each other");
    for (const JsonPart& item : part["processors"].items()) read_post_processor(item, depth + 1, out);
  } else if (type == "TemplateProcessing") {
    read_template(part, out);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    part.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    const std::vector<JsonPart> first = part["cls"].items(), last = part["sep"].items();
    if (first.size() != 2 || last.size() != 2) part.wrong("cls and sep must be [token, id]");
    out.begin.push_back(token_id(first[1]));
    out.end.push_back(token_id(last[1]));
  } else if (type == "ByteLevel") {
    part.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});  // of no effect on ids
  } else {
    part["type"].expected("one of Sequence, TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel");
  }
}

// All members but `model`. Lengths and pads are the recipe's business, and nothing is decoded here.
Rules read_rules(const JsonPart& root) {
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  Rules out;
  if (const auto part = root.find("normalizer")) out.normalizer = read_normalizer(*part);
  if (const auto part = root.find("pre_tokenizer")) out.pre_tokenizer = read_pre_tokenizer(*part);
  if (const auto part = root.find("post_processor")) read_post_processor(*part, 0, out);
  if (const auto part = root.find("added_tokens"))
    for (const JsonPart& item : part->items()) out.added.push_back(read_added_token(item));
  return out;
}

// The added tokens that the files beside a vocabulary list.
std::vector<AddedToken> read_added_tokens(const TokenizerSource& source) {
  std::vector<AddedToken> added;
  if (const SourceFile* file = source.file("tokenizer_config.json")) {
    const std::string name = file->path.string();
    const nlohmann::json json = parse_json(file->bytes, name);
    if (const auto list = JsonPart(json, name).find("added_tokens_decoder")) {
      if (!list->value().is_object()) list->expected("an object of id: token");
      for (const auto& [key, value] : list->value().items()) {
        if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos)
          list->wrong(fmt::format("expected an id as key, found \"{}\"", key));
        added.push_back(read_added_token((*list)[key.c_str()], std::stoi(key)));
      }
      return added;
    }
  }
  if (const SourceFile* file = source.file("added_tokens.json")) {
    const std::string name = file->path.string();
    const nlohmann::json json = parse_json(file->bytes, name);
    const JsonPart root(json, name);
    if (!json.is_object()) root.expected("an object of token: id");
    for (const auto& [token, id] : json.items()) {
      AddedToken item;
      item.text = from_utf8(token);
      item.id = token_id(root[token.c_str()]);
      added.push_back(item);
    }
  }
  return added;
}

class BpeTokenizer : public TokenModel {
 public:
  BpeTokenizer(Bpe bpe, Rules rules, const std::string& file) : bpe_(std::move(bpe)), rules_(std::move(rules)) {
    for (const auto& [token, id] : bpe_.vocabulary()) ids_.insert(id);
    std::vector<AddedToken> raw, changed;
    for (const AddedToken& token : rules_.added) add(token, file, token.normalized ? changed : raw);
    raw_ = AddedTokens(std::move(raw));
    changed_ = AddedTokens(std::move(changed));
    if (rules_.pre_tokenizer.byte_level && bpe_.options().unknown.empty() && !bpe_.options().byte_fallback)
      check_bytes(file);
  }

  std::vector<int32_t> ids(const std::string& utf8) const override {
    const icu::UnicodeString text = from_utf8(utf8);
    std::vector<int32_t> ids;
    for (const AddedTokens::Part& part : raw_.cut(text)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        add_text(icu::UnicodeString(text, part.begin, part.end - part.begin), part.begin == 0, ids);
      }
    }
    return ids;
  }

  std::optional<int32_t> id_of(const std::string& token) const override {
    const auto added = added_.find(token);
    return added == added_.end() ? bpe_.id_of(token) : std::optional(added->second);
  }
  bool has(int32_t id) const override { return ids_.contains(id); }
  std::vector<int32_t> begin() const override { return rules_.begin; }
  std::vector<int32_t> end() const override { return rules_.end; }

 private:
  void add(const AddedToken& token, const std::string& file, std::vector<AddedToken>& list) {
    const std::string name = to_utf8(token.text);
    if (const auto known = id_of(name); known && *known != token.id)
      fail(Code::data, "tokenizer {}: added token \"{}\" has id {}, but the vocabulary gives it {}", file, name,
           token.id, *known);
    added_[name] = token.id;
    ids_.insert(token.id);
    AddedToken kept = token;
    if (kept.normalized)
      for (const TextStep& step : rules_.normalizer) step(kept.text);
    list.push_back(std::move(kept));
  }

  // A byte without a token would be lost without a word.
  void check_bytes(const std::string& file) const {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string symbol = to_utf8(icu::UnicodeString(byte_character(static_cast<unsigned char>(byte))));
      if (!bpe_.id_of(symbol) || !bpe_.id_of(symbol + bpe_.options().end_suffix))
        fail(Code::data, "tokenizer {}: there is no token for byte {} (is this the vocabulary of another tokenizer?)",
             file, byte);
    }
  }

  void add_text(icu::UnicodeString text, bool first, std::vector<int32_t>& ids) const {
    for (const TextStep& step : rules_.normalizer) step(text);
    for (const AddedTokens::Part& part : changed_.cut(text)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
        continue;
      }
      std::vector<TextPiece> pieces{
          {icu::UnicodeString(text, part.begin, part.end - part.begin), first && part.begin == 0}};
      for (const PieceStep& step : rules_.pre_tokenizer.steps) step(pieces);
      for (const TextPiece& piece : pieces) bpe_.encode(to_utf8(piece.text), ids);
    }
  }

  Bpe bpe_;
  Rules rules_;
  AddedTokens raw_, changed_;  // looked for in the text as it is, and as the normalizer leaves it
  std::unordered_map<std::string, int32_t> added_;
  std::unordered_set<int32_t> ids_;
};

}  // namespace

const SourceFile* TokenizerSource::file(const std::string& name) const {
  const auto found = std::ranges::find_if(files, [&](const SourceFile& f) { return f.path.filename() == name; });
  return found == files.end() ? nullptr : &*found;
}

std::unique_ptr<TokenModel> read_bpe(const TokenizerSource& source) {
  const SourceFile* vocabulary = source.file("vocab.json");
  const SourceFile* merges = source.file("merges.txt");
  if (vocabulary == nullptr || merges == nullptr) {
    const std::string file = source.files.front().path.string();
    const nlohmann::json json = parse_json(source.files.front().bytes, file);
    const JsonPart root(json, file);
    if (!json.is_object()) root.expected("an object");
    Rules rules = read_rules(root);
    return std::make_unique<BpeTokenizer>(read_bpe_model(root["model"]), std::move(rules), file);
  }
  const std::string file = vocabulary->path.string();
  if (source.rules.empty())
    fail(Code::plugin,
         "tokenizer {}: nothing says how text is cut into words: the recipe needs `rules`, or a bundled "
         "folder with tokenizer.yaml, unless there is a tokenizer.json",
         file);
  const nlohmann::json json = parse_json(source.rules, source.rules_from);
  const JsonPart root(json, source.rules_from);
  Rules rules = read_rules(root);
  if (!root.find("added_tokens")) rules.added = read_added_tokens(source);
  static const nlohmann::json no_options = nlohmann::json::object();
  const JsonPart model = root.find("model").value_or(JsonPart(no_options, source.rules_from));
  Bpe bpe = read_bpe_model(model, *vocabulary, *merges, source.tokens, source.merges);
  return std::make_unique<BpeTokenizer>(std::move(bpe), std::move(rules), file);
}

}  // namespace lh
