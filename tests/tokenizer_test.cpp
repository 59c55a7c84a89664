// The tokenizers against the ids of the reference implementations.
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/token_model.h"
#include "support/paths.h"
#include "support/token_files.h"

namespace lh::test::tokenizer_test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

nlohmann::json read_json(const fs::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in.good()) << file;
  return nlohmann::json::parse(in);
}
nlohmann::json golden(const std::string& name) { return read_json(fs::path(test_data()) / name); }

std::unique_ptr<Tokenizer> clip(int32_t pad) {
  TokenizerSpec spec = tokenizer_spec("clip");
  spec.pad = pad;
  return make_tokenizer(spec, {});
}
const Tokenizer& clip_l() {
  static const auto tokenizer = clip(49407);
  return *tokenizer;
}
const Tokenizer& t5() {
  static const auto tokenizer = make_tokenizer(tokenizer_spec("t5"), {});
  return *tokenizer;
}
TokenizerSpec qwen3_spec() {
  TokenizerSpec spec = tokenizer_spec("bpe");
  spec.files.bundled = "qwen3";
  return spec;
}
const Tokenizer& qwen3() {
  static const auto tokenizer = make_tokenizer(qwen3_spec(), {});
  return *tokenizer;
}

TEST(ClipTokenizer, EqualsTheGoldenIds) {
  const auto g = clip(0);
  int64_t count = 0;
  const auto json = golden("clip.json");
  for (const auto& prompt : json["prompts"]) {
    const auto text = prompt["text"].get<std::string>();
    EXPECT_EQ(tokenize(clip_l(), text, 77).ids, prompt["clip_l"].get<Ids>()) << text;
    EXPECT_EQ(tokenize(*g, text, 77).ids, prompt["clip_g"].get<Ids>()) << text;
    ++count;
  }
  EXPECT_EQ(count, 64);
}

TEST(ClipTokenizer, CutsAndSaysHowMuch) {
  TokenRows row = tokenize(clip_l(), "a photo of a cat", 77);
  EXPECT_EQ(row.ids.size(), 77u);
  EXPECT_EQ(row.cut, 0);
  row = tokenize(clip_l(), "a photo of a cat", 7);
  EXPECT_EQ(row.ids, (Ids{49406, 320, 1125, 539, 320, 2368, 49407}));
  EXPECT_EQ(row.cut, 0);
  row = tokenize(clip_l(), "a photo of a cat", 5);
  EXPECT_EQ(row.ids, (Ids{49406, 320, 1125, 539, 49407}));
  EXPECT_EQ(row.cut, 2);
  EXPECT_THROW(tokenize(clip_l(), "a", 1), Error);
}

// sd-scripts cuts one long text: begin, 75 n ids, end or pads behind them, into rows of begin, 75 of those ids and what
// comes last of all, which it makes an end where a row would have none, as it does of a pad behind begin.
Ids rows_of_sd_scripts(const Tokenizer& tokenizer, const std::string& text, int64_t rows, int32_t pad) {
  constexpr int32_t end = 49407;
  constexpr int64_t room = 75;
  const Ids whole = tokenize(tokenizer, text, rows * room + 2).ids;
  Ids out;
  for (int64_t row = 0; row < rows; ++row) {
    Ids one{whole.front()};
    one.insert(one.end(), whole.begin() + 1 + row * room, whole.begin() + 1 + (row + 1) * room);
    one.push_back(whole.back());
    if (one[75] != end && one[75] != pad) one[76] = end;
    if (one[1] == pad) one[1] = end;
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

TEST(ClipTokenizer, LongTextGoesOnInRows) {
  for (const int32_t pad : {49407, 0}) {
    TokenizerSpec spec = tokenizer_spec("clip");
    spec.pad = pad;
    spec.row_tokens = 75;
    const auto tokenizer = make_tokenizer(spec, {});
    for (const int64_t rows : {2, 3})
      for (const int64_t words : {0, 1, 74, 75, 76, 149, 150, 151, 224, 225, 226, 300}) {
        SCOPED_TRACE(testing::Message() << "pad " << pad << ", " << rows << " rows, " << words << " words");
        std::string text;
        for (int64_t i = 0; i < words; ++i) text += i % 3 == 0 ? "cat " : "photo ";
        const TokenRows got = tokenize(*tokenizer, text, 77, rows);
        EXPECT_EQ(got.ids, rows_of_sd_scripts(*tokenizer, text, rows, pad));
        EXPECT_EQ(got.cut, std::max<int64_t>(0, words - 75 * rows));
        EXPECT_EQ(std::ranges::count(got.mask, 1), std::min(words, 75 * rows) + 2 * rows);
      }
  }
  // A recipe that is wrong about the room of a row.
  TokenizerSpec spec = tokenizer_spec("clip");
  spec.row_tokens = 76;
  EXPECT_THROW(tokenize(*make_tokenizer(spec, {}), "a cat", 77, 2), Error);
}

TEST(ClipTokenizer, MarksAreIdsWhereTheyStandAndWordsInCapitals) {
  EXPECT_EQ(clip_l().encode("<|endoftext|>"), Ids{49407});
  EXPECT_EQ(clip_l().encode("<|ENDOFTEXT|>!!"), clip_l().encode("<| endoftext |> !!"));
  EXPECT_EQ(clip_l().encode("\u0130"), clip_l().encode("i\u0307"));
}

TEST(ClipTokenizer, LongWordsTakeNoQuadraticTime) {
  EXPECT_GT(tokenize(clip_l(), std::string(64 << 10, 'a'), 77).cut, 0);
}

TEST(ClipTokenizer, BrokenUtf8IsReplacedNotFatal) {
  EXPECT_EQ(clip_l().encode("cat \xff"), clip_l().encode("cat \xef\xbf\xbd"));
}

TEST(T5Tokenizer, EqualsTheGoldenIds) {
  int64_t count = 0;
  const auto json = golden("t5.json");
  for (const auto& prompt : json["prompts"]) {
    const auto text = prompt["text"].get<std::string>();
    for (const int64_t length : {256, 512}) {
      const auto expected = [&](const char* key) {
        const std::string cut_key = std::string(key) + "_" + std::to_string(length);
        if (prompt.contains(cut_key)) return prompt[cut_key].get<Ids>();
        auto ids = prompt[key].get<Ids>();
        EXPECT_LE(static_cast<int64_t>(ids.size()), length) << text;
        ids.resize(static_cast<size_t>(length), 0);
        return ids;
      };
      const Ids ids = tokenize(t5(), text, length).ids;
      const bool equal =
          ids == expected("ids") || (prompt.contains("sentencepiece") && ids == expected("sentencepiece"));
      EXPECT_TRUE(equal) << text;
    }
    ++count;
  }
  EXPECT_EQ(count, 64);
}

TEST(T5Tokenizer, CutsAndSaysHowMuch) {
  TokenRows row = tokenize(t5(), "a photo of a cat", 8);
  EXPECT_EQ(row.ids, (Ids{3, 9, 1202, 13, 3, 9, 1712, 1}));
  EXPECT_EQ(row.cut, 0);
  row = tokenize(t5(), "a photo of a cat", 4);
  EXPECT_EQ(row.ids, (Ids{3, 9, 1202, 1}));
  EXPECT_EQ(row.cut, 4);
  EXPECT_EQ(tokenize(t5(), "a photo", 6).mask, (Ids{1, 1, 1, 1, 0, 0}));
}

// Every row of a table: {"text", "ids"}, and those inside templates.
int64_t expect_table(const Tokenizer& tokenizer, const nlohmann::json& table) {
  int64_t count = 0;
  const auto row = [&](const nlohmann::json& item) {
    const auto text = item.at("text").get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), item.at("ids").get<Ids>()) << text;
    ++count;
  };
  for (const auto& item : table.at("prompts")) row(item);
  for (const auto& [family, items] : table.at("templates").items())
    for (const auto& item : items) row(item);
  return count;
}

TEST(BpeTokenizer, EqualsTheGoldenIdsOfATokenizerJson) {
  const auto tokenizer = tokenizer_of(fs::path(test_data()) / "qwen_small", tokenizer_spec("bpe"));
  EXPECT_EQ(expect_table(*tokenizer, golden("qwen_small/qwen.json")), 327);
}

TEST(BpeTokenizer, EqualsTheGoldenIdsOfVocabularyAndMerges) {
  const auto table = golden("qwen3.json");
  EXPECT_EQ(expect_table(qwen3(), table), 327);
  for (const auto& [token, id] : table["added"].items()) EXPECT_EQ(qwen3().encode(token), Ids{id.get<int32_t>()});
}

// Tables that are kept outside of the repository: a folder tokenizer_NAME with or without a tokenizer.json of its own.
TEST(BpeTokenizer, EqualsFurtherTables) {
  const fs::path tables = fs::path(source_dir()) / ".." / "shared" / "golden";
  if (!fs::is_directory(tables)) GTEST_SKIP() << "there is no " << tables;
  for (const auto& folder : fs::directory_iterator(tables)) {
    if (!folder.path().filename().string().starts_with("tokenizer_")) continue;
    const bool own = fs::exists(folder.path() / "tokenizer.json");
    const auto tokenizer = own ? tokenizer_of(folder.path(), tokenizer_spec("bpe")) : nullptr;
    for (const auto& file : fs::directory_iterator(folder)) {
      if (file.path().extension() != ".json" || file.path().filename() == "tokenizer.json") continue;
      EXPECT_GT(expect_table(own ? *tokenizer : qwen3(), read_json(file.path())), 0) << file.path();
    }
  }
}

TEST(TokenModels, AreSharedByTokenizersOfTheSameFiles) {
  const auto source = [](const std::string& folder, const std::string& merges) {
    return TokenizerSource{.files = {{folder + "tokenizer.json",
                                      R"({"version": "1.0", "model": {"type": "BPE", "unk_token": "<unk>",
                                          "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3}, "merges": [)" +
                                          merges + "]}}"}},
                           .rules = {},
                           .rules_from = {}};
  };
  auto model = token_model("bpe", source("", "\"a b\""));
  EXPECT_EQ(token_model("bpe", source("folder/", "\"a b\"")), model);
  const auto without_merges = token_model("bpe", source("", ""));
  EXPECT_EQ(model->ids("ab"), (Ids{2}));
  EXPECT_EQ(without_merges->ids("ab"), (Ids{0, 1}));
  const std::weak_ptr<const TokenModel> kept = model;
  model.reset();
  EXPECT_TRUE(kept.expired());
}

// Each place of a picture is a token; what a prompt says of places is text.
TEST(TokenizerTemplate, HasAPlaceForEachPartOfAPicture) {
  TokenizerSpec spec = qwen3_spec();
  spec.pad = "<|endoftext|>";
  spec.text = "{pictures}{prompt}";
  spec.picture = "Picture {number}: <|vision_start|>{places}<|vision_end|>";
  spec.place = "<|image_pad|>";
  const auto tokenizer = make_tokenizer(spec, {});
  const Ids plain = tokenizer->encode("a {places} cat"), seen = tokenizer->encode("a {places} cat", {3, 2});
  EXPECT_EQ(tokenizer->place(), 151655);
  EXPECT_EQ(std::ranges::count(plain, 151655), 0);
  EXPECT_EQ(std::ranges::count(seen, 151655), 5);
  EXPECT_EQ(Ids(seen.end() - static_cast<int64_t>(plain.size()), seen.end()), plain);
  const auto first = std::ranges::find(seen, 151655);
  EXPECT_EQ(Ids(first - 1, first + 4), (Ids{151652, 151655, 151655, 151655, 151653}));
  const auto second = std::find(first + 3, seen.end(), 151655);
  EXPECT_EQ(Ids(second - 1, second + 3), (Ids{151652, 151655, 151655, 151653}));
  EXPECT_EQ(tokenize(*tokenizer, "a cat", 40, 1, {3, 2}).mask[20], 1);
  TokenizerSpec other = spec;
  other.picture = "<|vision_start|>{places}<|vision_end|>";
  EXPECT_NE(make_tokenizer(other, {})->fingerprint(), tokenizer->fingerprint());
}

TEST(TokenizerTemplate, IsPutAroundThePrompt) {
  TokenizerSpec spec = qwen3_spec();
  spec.pad = "<|endoftext|>";
  spec.text = "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n";
  spec.system =
      "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the "
      "objects and background:";
  const auto tokenizer = make_tokenizer(spec, {});
  const auto table = golden("qwen3.json");
  const Ids front = table["prefix_tokens"]["qwen_image"].get<Ids>();
  Ids ids = tokenizer->encode("a {system} cat");
  ASSERT_GT(ids.size(), front.size());
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<int64_t>(front.size())), front);
  EXPECT_EQ(std::ranges::count(ids, 151644), 3) << "a prompt is no template";

  // What is too long loses its tail, the template's end with it.
  const auto size = static_cast<int64_t>(ids.size());
  const TokenRows cut = tokenize(*tokenizer, "a {system} cat", size - 7);
  EXPECT_EQ(cut.cut, 7);
  EXPECT_EQ(cut.ids, Ids(ids.begin(), ids.end() - 7));

  TokenizerSpec other = spec;
  other.negative_text = "{prompt}, {system}";
  other.system = "drawn";
  const auto two = make_tokenizer(other, {});
  EXPECT_EQ(two->encode("bad", {}, true), qwen3().encode("bad, drawn"));
  EXPECT_EQ(tokenize(*two, "bad", 60, 1, {}, true).ids[0], qwen3().encode("bad")[0]);
  EXPECT_EQ(tokenizer->encode("bad", {}, true), tokenizer->encode("bad"));
  EXPECT_NE(two->fingerprint(), tokenizer->fingerprint());

  spec.side = TokenizerSpec::Side::left;
  spec.strip = spec.lower = true;
  const TokenRows left = tokenize(*make_tokenizer(spec, {}), " \u00a0A {SYSTEM} Cat\n", size + 2);
  ids.insert(ids.begin(), 2, 151643);
  EXPECT_EQ(left.ids, ids);
  EXPECT_EQ(left.mask[1], 0);
  EXPECT_EQ(left.mask[2], 1);
  EXPECT_EQ(left.cut, 0);
}

}  // namespace
}  // namespace lh::test::tokenizer_test
