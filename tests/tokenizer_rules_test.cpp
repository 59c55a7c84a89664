// The rules of tokenizer.json one by one, and files that are wrong.
#include <gmock/gmock.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "support/io_files.h"
#include "support/run_host.h"
#include "support/token_files.h"

namespace lh::test::tokenizer_rules_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// A tokenizer of single characters (so that ids show what the text was cut into) with every member that is given.
json small() {
  json vocab = json::object();
  const auto add = [&](const std::string& token) { vocab.emplace(token, vocab.size()); };
  for (char c = ' '; c <= '~'; ++c) add({c});
  for (const char* token : {"ab", "abc", "<unk>", "\u2581", "\u2581a", "\u00e9", "e\u0301"}) add(token);
  return {{"version", "1.0"},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array({"a b", json{"ab", "c"}})}}}};
}

class TokenizerRules : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> make(const json& file) const { return make(file.dump()); }
  std::unique_ptr<Tokenizer> make(const std::string& text) const {
    std::ofstream(dir_ / "tokenizer.json") << text;
    return tokenizer_of(dir_, tokenizer_spec("bpe"));
  }
  // The tokens of a text under rules that are put into the small file, joined by "|".
  std::string tokens(const json& rules, const std::string& text) const {
    json file = small();
    file.merge_patch(rules);
    std::map<int32_t, std::string> names;
    for (const auto& [token, id] : file["model"]["vocab"].items()) names[id.get<int32_t>()] = token;
    for (const auto& token : file.value("added_tokens", json::array()))
      names[token["id"].get<int32_t>()] = token["content"].get<std::string>();
    std::string out;
    for (const int32_t id : make(file)->encode(text)) out += (out.empty() ? "" : "|") + names.at(id);
    return out;
  }
  // How a text is cut: merges join what is in one piece, so every letter is a word of its own or part of "abc".
  std::string cut(const json& pre_tokenizer, const std::string& text) const {
    return tokens({{"pre_tokenizer", pre_tokenizer}}, text);
  }
  const TempDir temp_;
  const fs::path dir_ = temp_.path();
};

TEST_F(TokenizerRules, Normalizers) {
  const auto normalised = [&](const json& rule, const std::string& text) {
    return tokens({{"normalizer", rule}}, text);
  };
  EXPECT_EQ(normalised({{"type", "NFC"}}, "e\u0301"), "\u00e9");
  EXPECT_EQ(normalised({{"type", "NFKC"}}, "\uff41\uff42\uff43"), "abc");
  EXPECT_EQ(normalised({{"type", "Lowercase"}}, "ABC"), "abc");
  EXPECT_EQ(normalised({{"type", "Strip"}}, " a\u00a0"), "a");
  EXPECT_EQ(normalised({{"type", "Strip"}, {"strip_left", false}}, " a "), " |a");
  EXPECT_EQ(normalised({{"type", "Prepend"}, {"prepend", "\u2581"}}, "x"), "\u2581|x");
  EXPECT_EQ(normalised({{"type", "Prepend"}, {"prepend", "\u2581"}}, ""), "");
  EXPECT_EQ(normalised({{"type", "Replace"}, {"pattern", {{"String", "xx"}}}, {"content", "b"}}, "axxxc"), "ab|x|c");
  EXPECT_EQ(normalised({{"type", "Replace"}, {"pattern", {{"Regex", "[xy]+"}}}, {"content", "$0"}}, "axyb"), "a|$|0|b");
  EXPECT_EQ(normalised({{"type", "Sequence"},
                        {"normalizers", {{{"type", "NFD"}}, {{"type", "StripAccents"}}, {{"type", "Lowercase"}}}}},
                       "\u00c9"),
            "e");
}

TEST_F(TokenizerRules, Splits) {
  const auto split = [&](const char* behavior, bool invert = false) {
    return cut({{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", behavior}, {"invert", invert}}, "abbc");
  };
  EXPECT_EQ(cut(nullptr, "abbc"), "ab|b|c");
  EXPECT_EQ(split("Isolated"), "a|b|b|c");
  EXPECT_EQ(split("Removed"), "a|c");
  EXPECT_EQ(split("Removed", true), "b|b");
  EXPECT_EQ(split("MergedWithPrevious"), "ab|b|c");
  EXPECT_EQ(split("MergedWithNext"), "a|b|b|c");
  EXPECT_EQ(split("Contiguous"), "a|b|b|c");
  EXPECT_EQ(cut({{"type", "WhitespaceSplit"}}, " abc  a\n"), "abc|a");
  EXPECT_EQ(cut({{"type", "Whitespace"}}, "abc!? a"), "abc|!|?|a");
  EXPECT_EQ(cut({{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}, "a a"),
            "\u2581|a|\u2581|a");
  const json both = {{"type", "Sequence"},
                     {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, {{"type", "Punctuation"}}}}};
  EXPECT_EQ(cut(both, "ab12,"), "ab|1|2|,");
  const std::string letter =
      cut({{"type", "Split"}, {"pattern", {{"Regex", "^b"}}}, {"behavior", "Isolated"}}, "ab\nab");
  EXPECT_EQ(letter, "ab|ab") << "no line begins with b, and a line end is no token";
}

TEST_F(TokenizerRules, Models) {
  const auto of = [&](const json& model, const std::string& text) { return tokens({{"model", model}}, text); };
  EXPECT_EQ(of({{"unk_token", "<unk>"}}, "a\u4e00\u4e00b"), "a|<unk>|<unk>|b");
  EXPECT_EQ(of({{"unk_token", "<unk>"}, {"fuse_unk", true}}, "a\u4e00\u4e00b"), "a|<unk>|b");
  EXPECT_EQ(of({{"byte_fallback", true}, {"vocab", {{"<0xC3>", 500}, {"<0xB6>", 501}}}}, "a\u00f6"), "a|<0xC3>|<0xB6>");
  EXPECT_EQ(of({{"vocab", {{"xyz", 500}}}}, "xyz"), "x|y|z");
  EXPECT_EQ(of({{"vocab", {{"xyz", 500}}}, {"ignore_merges", true}}, "xyz"), "xyz");
  EXPECT_EQ(of({{"end_of_word_suffix", "~"}, {"vocab", {{"c~", 500}}}}, "abc"), "ab|c~");
  EXPECT_EQ(
      of({{"continuing_subword_prefix", "#"}, {"vocab", {{"#b", 500}}}, {"merges", json::array({json{"a", "#b"}})}},
         "ab"),
      "ab");
}

TEST_F(TokenizerRules, AddedTokens) {
  const auto with = [&](json token, const std::string& text) {
    token.update({{"id", 900}, {"content", "abc"}});
    return tokens({{"model", {{"vocab", {{"abc", 900}}}}},
                   {"normalizer", {{"type", "Lowercase"}}},
                   {"added_tokens", {token, {{"id", 901}, {"content", "abcd"}, {"special", true}}}}},
                  text);
  };
  EXPECT_EQ(with({{"normalized", false}}, "xabcdabcx"), "x|abcd|abc|x") << "the longest at the leftmost place";
  EXPECT_EQ(with({{"single_word", true}, {"normalized", false}}, "xabc! abc "), "x|abc|!| |abc| ");
  EXPECT_EQ(with({{"lstrip", true}, {"normalized", false}}, "x  abc y"), "x|abc| |y");
  EXPECT_EQ(with({{"rstrip", true}, {"normalized", false}}, "x  abc  y"), "x| | |abc|y");
  EXPECT_EQ(with({{"normalized", true}}, "ABCD"), "abc|d")
      << "what is looked for in changed text is not the other token";
}

TEST_F(TokenizerRules, ManyAddedTokensTakeNoLonger) {
  json added = json::array();
  for (int i = 0; i < 60000; ++i)
    added.push_back({{"id", 1000 + i}, {"content", fmt::format("<|{}|>", i)}, {"special", true}});
  for (const char* more : {"<|", "<|77"}) added.push_back({{"id", 90000 + added.size()}, {"content", more}});
  const std::clock_t begin = std::clock();  // the processor's: the machine may be busy
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "<|7x<|77<|59999|>";
  EXPECT_TRUE(tokens({{"added_tokens", added}}, text).starts_with("<||7|x|<|77|<|59999|>|<||7|x|"));
  EXPECT_LT(std::clock() - begin, (sanitized ? 60 : 10) * CLOCKS_PER_SEC);
}

TEST_F(TokenizerRules, ListsAreNotNestedForEver) {
  EXPECT_THAT(error_of([&] { make(std::string(1 << 20, '['))->encode("a"); }),
              HasSubstr("levels of lists and objects"));
  EXPECT_THAT(error_of([&] { make("{\"version\": \"" + std::string(1000, '[') + "\\\"{\"}")->encode("a"); }),
              HasSubstr("`model` is missing"));
}

TEST_F(TokenizerRules, WhatStandsAroundAText) {
  const auto frame = [&](const json& processor) {
    json file = small();
    file["post_processor"] = processor;
    const auto tokenizer = make(file);
    std::vector<int32_t> ids = tokenizer->frame().begin;
    ids.push_back(-1);
    ids.insert(ids.end(), tokenizer->frame().end.begin(), tokenizer->frame().end.end());
    return ids;
  };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(frame({{"type", "ByteLevel"}}), Ids{-1});
  EXPECT_EQ(frame({{"type", "RobertaProcessing"}, {"cls", {"a", 5}}, {"sep", {"b", 6}}}), (Ids{5, -1, 6}));
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
             one = {{"SpecialToken", {{"id", "s"}, {"type_id", 0}}}};
  const json names = {{"s", {{"id", "s"}, {"ids", {7, 8}}, {"tokens", {"x", "y"}}}}};
  EXPECT_EQ(frame({{"type", "TemplateProcessing"}, {"single", {one, text}}, {"special_tokens", names}}),
            (Ids{7, 8, -1}));
  EXPECT_EQ(frame({{"type", "TemplateProcessing"}, {"single", {text, one}}, {"special_tokens", names}}),
            (Ids{-1, 7, 8}));
}

TEST_F(TokenizerRules, WhatIsWrongIsNamed) {
  struct Row {
    json patch;
    const char* error;
  };
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) deep = {{"type", "Sequence"}, {"normalizers", json::array({deep})}};
  const auto split = [](const json& pattern) {
    return json{{"pre_tokenizer", {{"type", "Split"}, {"pattern", pattern}, {"behavior", "Isolated"}}}};
  };
  const Row rows[] = {
      {{{"model", nullptr}}, "`model` is missing"},
      {{{"model", {{"vocab", nullptr}}}}, "model: `vocab` is missing"},
      {{{"model", {{"merges", nullptr}}}}, "model: `merges` is missing"},
      {{{"model", {{"type", "Unigram"}}}}, "model.type: expected BPE, found \"Unigram\""},
      {{{"model", {{"dropout", 0.1}}}}, "model.dropout: expected null or 0"},
      {{{"model", {{"unk_token", "<none>"}}}}, "model.unk_token: \"<none>\" is not in the vocabulary"},
      {{{"model", {{"byte_fallback", "yes"}}}}, "model.byte_fallback: expected true or false, found \"yes\""},
      {{{"model", {{"speed", 1}}}}, "model: `speed` is not supported; known: type, dropout"},
      {{{"model", {{"vocab", {{"a", -1}}}}}}, "model.vocab: token \"a\": expected an id from 0 to 16777215, found -1"},
      {{{"model", {{"vocab", {{"a", 1e3}}}}}}, "token \"a\": expected an id"},
      {{{"model", {{"vocab", {{"a", 1}}}}}}, "is that of another token, too"},
      {{{"model", {{"vocab", {1, 2}}}}}, "model.vocab: expected an object of token: id, found [1,2]"},
      {{{"model", {{"merges", {"a b", "a"}}}}}, "model.merges: merge 1 (\"a\") is not made of two tokens"},
      {{{"model", {{"merges", {"a b c"}}}}}, "model.merges: merge 0 (\"a b c\") is not made of"},
      {{{"model", {{"merges", json::array({json{"a", "\u4e00"}})}}}}, "merge 0 ([\"a\",\"\u4e00\"]) is not made of"},
      {{{"model", {{"merges", {1}}}}}, "merge 0: expected \"a b\" or [\"a\", \"b\"], found 1"},
      {{{"model", {{"merges", "a b"}}}}, "model.merges: expected a list, found \"a b\""},
      {{{"extra", 1}}, "`extra` is not supported; known: version, truncation"},
      {{{"normalizer", {{"type", "Precompiled"}}}}, "normalizer.type: expected one of Sequence, NFC"},
      {{{"normalizer", {{"kind", "NFC"}}}}, "normalizer: `type` is missing"},
      {{{"normalizer", "NFC"}}, "normalizer: expected an object, found \"NFC\""},
      {{{"normalizer", {{"type", "NFC"}, {"form", 1}}}}, "normalizer: `form` is not supported; known: type"},
      {{{"normalizer", deep}}, "there are too many sequences inside each other"},
      {{{"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Nmt"}}}}}}},
       "normalizer.normalizers[1].type: expected one of"},
      {{{"normalizer", {{"type", "Replace"}, {"pattern", "a"}, {"content", ""}}}},
       "normalizer.pattern: expected an object"},
      {{{"pre_tokenizer", {{"type", "BertPreTokenizer"}}}}, "pre_tokenizer.type: expected one of Sequence, Split"},
      {split({{"Regex", "a("}}), "pre_tokenizer.pattern.Regex: `a(` is no regular expression"},
      {split({{"Regex", "\\h+"}}), "`\\h` in the expression `\\h+` is not supported"},
      {split({{"Regex", "(?m)."}}), "`(?m` in the expression `(?m).` is not supported"},
      {split({{"Regex", "a"}, {"String", "a"}}), "pre_tokenizer.pattern: expected either String or Regex"},
      {split(json::object()), "pre_tokenizer.pattern: expected either String or Regex, found {}"},
      {{{"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Gone"}}}},
       "pre_tokenizer.behavior: expected one of Removed"},
      {{{"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}}},
       "pre_tokenizer.replacement: expected one character, found \"ab\""},
      {{{"pre_tokenizer", {{"type", "ByteLevel"}}}}, "there is no token for byte 0 "},
      {{{"post_processor", {{"type", "Other"}}}}, "post_processor.type: expected one of Sequence, TemplateProcessing"},
      {{{"post_processor", {{"type", "RobertaProcessing"}, {"cls", {"a"}}, {"sep", {"b", 6}}}}},
       "post_processor: cls and sep must be [token, id]"},
      {{{"post_processor",
         {{"type", "TemplateProcessing"},
          {"single", json::array({{{"SpecialToken", {{"id", "s"}}}}})},
          {"special_tokens", json::object()}}}},
       "post_processor.special_tokens: `s` is missing"},
      {{{"added_tokens", {{{"id", 900}}}}}, "added_tokens[0]: `content` is missing"},
      {{{"added_tokens", {{{"content", "x y"}}}}}, "added_tokens[0]: `id` is missing"},
      {{{"added_tokens", {{{"id", -3}, {"content", "x y"}}}}}, "added_tokens[0].id: expected a whole number from 0"},
      {{{"added_tokens", {{{"id", 900}, {"content", "a"}}}}},
       "added token \"a\" has id 900, but the vocabulary gives it 65"},
  };
  for (const Row& row : rows) {
    json file = small();
    file.merge_patch(row.patch);
    try {
      make(file)->encode("a");
      ADD_FAILURE() << "expected: " << row.error;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::data);
      EXPECT_THAT(error.what(), HasSubstr(row.error));
      EXPECT_THAT(error.what(), HasSubstr((dir_ / "tokenizer.json").string()));
    }
  }
}

TEST_F(TokenizerRules, BytesThatAreNoJson) {
  const std::string whole = small().dump();
  for (const std::string& text : {std::string(), std::string("[]"), std::string("3"), std::string("{"),
                                  std::string("\xff\xfe{}"), std::string("{\"model\": \"\xc3\"}"),
                                  whole.substr(0, whole.size() / 2), std::string(100000, '['), std::string(5, '\0')})
    EXPECT_THROW(make(text)->encode("a"), Error) << text.substr(0, 20);
}

// Every member of the file replaced by something else: an error, or a tokenizer that works; nothing in between.
TEST_F(TokenizerRules, AnyMemberMayBeWrong) {
  json file = small();
  file.merge_patch(json::parse(R"({
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"},
      {"type": "Replace", "pattern": {"String": "x"}, "content": "y"}]},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Isolated", "invert": false},
    "added_tokens": [{"id": 901, "content": "abcd", "lstrip": true, "special": true}],
    "post_processor": {"type": "RobertaProcessing", "cls": ["a", 5], "sep": ["b", 6]}})"));
  int64_t refused = 0, worked = 0;
  const json flat = file.flatten();
  for (const auto& [path, value] : flat.items()) {
    if (path.starts_with("/model/vocab/") && path > "/model/vocab/b") continue;
    for (const char* other : {"null", "-1", "1e300", "\"\"", "\"zzz\"", "[]", "{}", "true", "[[1]]"}) {
      json changed = file;
      changed[json::json_pointer(path)] = json::parse(other);
      try {
        make(changed)->encode("abcd xaby");
        ++worked;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 400);
  EXPECT_GT(worked, 20);
}

}  // namespace
}  // namespace lh::test::tokenizer_rules_test
