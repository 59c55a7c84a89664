// The tokenizers against the ids of the reference implementations.
#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace lh {
namespace {

using Ids = std::vector<int32_t>;

nlohmann::json golden(const std::string& name) {
  std::ifstream file(std::string(LORA_TEST_DATA) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  return nlohmann::json::parse(file);
}

std::string share(const std::string& kind) { return std::string(LORA_SOURCE_DIR) + "/share/tokenizers/" + kind; }

const Tokenizer& clip_l() {
  static const auto tokenizer = make_clip_tokenizer(share("clip"), 49407);
  return *tokenizer;
}
const Tokenizer& t5() {
  static const auto tokenizer = make_t5_tokenizer(share("t5") + "/spiece.model");
  return *tokenizer;
}

TEST(ClipTokenizer, EqualsTheGoldenIds) {
  const auto g = make_clip_tokenizer(share("clip"), 0);
  int64_t count = 0;
  const auto json = golden("clip.json");
  for (const auto& prompt : json["prompts"]) {
    const auto text = prompt["text"].get<std::string>();
    EXPECT_EQ(clip_l().encode(text, 77), prompt["clip_l"].get<Ids>()) << text;
    EXPECT_EQ(g->encode(text, 77), prompt["clip_g"].get<Ids>()) << text;
    ++count;
  }
  EXPECT_EQ(count, 64);
}

TEST(ClipTokenizer, CutsAndSaysHowMuch) {
  int64_t cut = -1;
  EXPECT_EQ(clip_l().encode("a photo of a cat", 77, &cut).size(), 77u);
  EXPECT_EQ(cut, 0);
  EXPECT_EQ(clip_l().encode("a photo of a cat", 7, &cut), (Ids{49406, 320, 1125, 539, 320, 2368, 49407}));
  EXPECT_EQ(cut, 0);
  EXPECT_EQ(clip_l().encode("a photo of a cat", 5, &cut), (Ids{49406, 320, 1125, 539, 49407}));
  EXPECT_EQ(cut, 2);
  EXPECT_THROW(clip_l().encode("a", 1), Error);
}

TEST(ClipTokenizer, LongWordsTakeNoQuadraticTime) {
  int64_t cut = 0;
  clip_l().encode(std::string(64 << 10, 'a'), 77, &cut);
  EXPECT_GT(cut, 0);
}

TEST(ClipTokenizer, BrokenUtf8IsReplacedNotFatal) {
  EXPECT_EQ(clip_l().encode("cat \xff", 77), clip_l().encode("cat \xef\xbf\xbd", 77));
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
      const Ids ids = t5().encode(text, length);
      const bool equal =
          ids == expected("ids") || (prompt.contains("sentencepiece") && ids == expected("sentencepiece"));
      EXPECT_TRUE(equal) << text;
    }
    ++count;
  }
  EXPECT_EQ(count, 64);
}

TEST(T5Tokenizer, CutsAndSaysHowMuch) {
  int64_t cut = -1;
  EXPECT_EQ(t5().encode("a photo of a cat", 8, &cut), (Ids{3, 9, 1202, 13, 3, 9, 1712, 1}));
  EXPECT_EQ(cut, 0);
  EXPECT_EQ(t5().encode("a photo of a cat", 4, &cut), (Ids{3, 9, 1202, 1}));
  EXPECT_EQ(cut, 4);
}

TEST(TokenizerFiles, MissingOrDamagedFilesAreNamed) {
  EXPECT_THROW(make_clip_tokenizer("/nowhere", 0), Error);
  EXPECT_THROW(make_t5_tokenizer("/nowhere/spiece.model"), Error);
  const auto folder = std::filesystem::path(testing::TempDir()) / "lora_tokenizer_test";
  std::filesystem::create_directories(folder);
  const auto expect_error = [&](const std::string& part) {
    try {
      make_clip_tokenizer(folder, 0)->encode("a", 77);
      FAIL() << "expected an error about " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_EQ(error.code(), Code::data);
    }
  };
  std::ofstream(folder / "merges.txt") << "#version: 0.2\ni n\nt h\n";
  std::ofstream(folder / "vocab.json") << "{ \"a\": ";
  expect_error("vocab.json");
  std::ofstream(folder / "vocab.json") << R"({ "a": 1 })";
  expect_error("found 1");
  std::filesystem::copy_file(share("clip") + "/vocab.json", folder / "vocab.json",
                             std::filesystem::copy_options::overwrite_existing);
  expect_error("found 2");
  std::ofstream(folder / "merges.txt") << "#version: 0.2\ni nqzx\n";
  expect_error("merge 0");
  std::ofstream(folder / "merges.txt") << "#version";
  expect_error("merges.txt");
  std::ofstream(folder / "spiece.model") << "not a model";
  EXPECT_THROW(make_t5_tokenizer(folder / "spiece.model")->encode("a", 8), Error);
  std::filesystem::remove_all(folder);
}

TEST(TokenizerFiles, FolderFollowsTheEnvironment) {
  EXPECT_THROW(tokenizer_folder("other"), Error);
  setenv("LORA_HOST_DATA", "/nowhere", 1);
  EXPECT_THROW(tokenizer_folder("clip"), Error);
  setenv("LORA_HOST_DATA", (std::string(LORA_SOURCE_DIR) + "/share").c_str(), 1);
  EXPECT_EQ(tokenizer_folder("clip"), share("clip"));
  EXPECT_EQ(tokenizer_folder("t5"), share("t5"));
  unsetenv("LORA_HOST_DATA");
}

}  // namespace
}  // namespace lh
