// Where tokenizer files are looked for, and what is said of files that are missing or damaged.
#include "data/tokenizer_files.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "support/io_files.h"
#include "support/log.h"
#include "support/paths.h"
#include "support/token_files.h"

namespace lh::test::tokenizer_files_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const fs::path share = fs::path(source_dir()) / "share";
const fs::path qwen_small = fs::path(test_data()) / "qwen_small";

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

class TokenizerFiles : public testing::Test {
 protected:
  void TearDown() override { unsetenv("LORA_HOST_DATA"); }
  void expect_error(const TokenizerSpec& spec, const TokenizerPlaces& places, const std::string& part,
                    Code code = Code::data) const {
    try {
      make_tokenizer(spec, places)->encode("a");
      FAIL() << "expected an error about " << part;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_EQ(error.code(), code);
    }
  }
  const TempDir temp_;
  const fs::path dir_ = temp_.path();
};

TokenizerSpec everywhere() {
  TokenizerSpec spec = tokenizer_spec("bpe");
  spec.files = {.folder = "tokenizer_2", .config = "tokenizer_path", .bundled = "words"};
  spec.pad = 0;
  return spec;
}

TEST_F(TokenizerFiles, MissingOrDamagedOnesAreNamed) {
  const TokenizerSpec clip = tokenizer_spec("clip");
  const fs::path folder = dir_ / "tokenizers" / "clip";
  setenv("LORA_HOST_DATA", dir_.c_str(), 1);
  expect_error(clip, {}, (folder / "tokenizer.yaml").string());
  fs::create_directories(folder);
  fs::copy_file(share / "tokenizers/clip/tokenizer.yaml", folder / "tokenizer.yaml");
  expect_error(clip, {}, (folder / "vocab.json").string());
  write(folder / "merges.txt", "#version: 0.2\ni n\nt h\n");
  write(folder / "vocab.json", "{ \"a\": ");
  expect_error(clip, {}, "vocab.json: not JSON: ");
  write(folder / "vocab.json", R"({ "a": 1 })");
  expect_error(clip, {}, "expected 49408 tokens, found 1");
  write(folder / "vocab.json", R"({ "a": "1" })");
  expect_error(clip, {}, "token \"a\": expected an id from 0 to 16777215, found \"1\"");
  fs::copy_file(share / "tokenizers/clip/vocab.json", folder / "vocab.json", fs::copy_options::overwrite_existing);
  expect_error(clip, {}, "expected 48894 merges, found 2");
  write(folder / "merges.txt", "#version: 0.2\ni nqzx\n");
  expect_error(clip, {}, "merge 0 (\"i nqzx\")");
  write(folder / "merges.txt", "#version: 0.2\ni n\ni n n\n");
  expect_error(clip, {}, "merge 1 (\"i n n\")");
  write(folder / "merges.txt", "#version");
  expect_error(clip, {}, "merges.txt: expected 48894 merges, found 0");
  write(folder / "tokenizer.yaml", "kind: bpe\nrulez: {}\n");
  expect_error(clip, {}, "tokenizer.yaml:2:1: unknown field `rulez`");
  write(folder / "tokenizer.yaml", "kind: [\n");
  expect_error(clip, {}, "tokenizer.yaml:2:");
  write(folder / "tokenizer.yaml", "kind: t5\npad: 0\n");
  expect_error(clip, {}, "expected kind bpe or sentencepiece, found t5");

  write(dir_ / "tokenizers/t5/spiece.model", "not a model");
  write(dir_ / "tokenizers/t5/tokenizer.yaml", "{kind: sentencepiece, end: 1, pad: 0}");
  expect_error(tokenizer_spec("t5"), {}, "spiece.model: not a sentencepiece model");
  fs::copy_file(share / "tokenizers/t5/spiece.model", dir_ / "tokenizers/t5/spiece.model",
                fs::copy_options::overwrite_existing);
  TokenizerSpec t5 = tokenizer_spec("t5");
  EXPECT_EQ(tokenize(*make_tokenizer(t5, {}), "a photo", 5).ids, (std::vector<int32_t>{3, 9, 1202, 1, 0}));
  t5.pad = 32100;
  expect_error(t5, {}, "spiece.model: pad: there is no token with id 32100");
  t5.pad = "<padding>";
  expect_error(t5, {}, "spiece.model: pad: there is no token \"<padding>\"");
}

TEST_F(TokenizerFiles, AKindThatIsNoAlgorithmIsAFolder) {
  expect_error(tokenizer_spec("other"), {},
               "tokenizer kind `other` is not known to this host: it is none of bpe, "
               "sentencepiece, and there is no preset; tried:\n");
  EXPECT_THROW(bundled_tokenizer_folder("other", {}), Error);
  setenv("LORA_HOST_DATA", "/nowhere", 1);
  EXPECT_THROW(bundled_tokenizer_folder("clip", {}), Error);
  setenv("LORA_HOST_DATA", share.c_str(), 1);
  EXPECT_EQ(bundled_tokenizer_folder("clip", {}), share / "tokenizers/clip");
  EXPECT_EQ(bundled_tokenizer_folder("t5", {}), share / "tokenizers/t5");
}

TEST_F(TokenizerFiles, TheUsersComeFirstThenTheCheckpointsThenThePlugins) {
  const TokenizerPlaces places{.user = dir_ / "user", .checkpoint = dir_ / "model", .plugin = dir_ / "lib/tiny.so"};
  const TokenizerPlaces no_user{.user = {}, .checkpoint = places.checkpoint, .plugin = places.plugin};
  const auto find = [&](const TokenizerPlaces& where) {
    return find_tokenizer_files("bpe", everywhere().files, where).front();
  };
  setenv("LORA_HOST_DATA", (dir_ / "data").c_str(), 1);
  const fs::path user = dir_ / "user/tokenizer.json", of_model = dir_ / "model/tokenizer_2/tokenizer.json",
                 of_plugin = dir_ / "lib/tiny/tokenizers/words/tokenizer.json",
                 of_host = dir_ / "data/tokenizers/words/tokenizer.json";
  write(of_host, "{}");
  EXPECT_EQ(find(no_user), of_host);
  write(of_plugin, "{}");
  EXPECT_EQ(find(no_user), of_plugin);
  fs::create_directories(of_model.parent_path());
  EXPECT_EQ(find(no_user), of_plugin) << "the checkpoint's folder holds nothing that fits";
  EXPECT_THAT(take_warnings(), testing::ElementsAre(HasSubstr("tokenizer_2 holds no files of kind bpe")));
  write(of_model, "{}");
  EXPECT_EQ(find(no_user), of_model);
  expect_error(everywhere(), places, (dir_ / "user").string() + " (model.tokenizer_path): not there");
  write(user, "{}");
  EXPECT_EQ(find(places), user);
  TokenizerPlaces file = places;
  file.user = of_host;
  EXPECT_EQ(find(file), of_host) << "a file is taken itself";
}

TEST_F(TokenizerFiles, WhatWasTriedIsListed) {
  setenv("LORA_HOST_DATA", (dir_ / "data").c_str(), 1);
  fs::create_directories(dir_ / "model");
  try {
    make_tokenizer(everywhere(), {.user = {}, .checkpoint = dir_ / "model", .plugin = dir_ / "lib/tiny.so"});
    FAIL();
  } catch (const Error& error) {
    for (const char* place : {"model/tokenizer_2 (of the checkpoint)", "lib/tiny/tokenizers/words (bundled)",
                              "data/tokenizers/words (bundled)"})
      EXPECT_THAT(error.what(), HasSubstr((dir_ / place).string()));
  }
}

TEST_F(TokenizerFiles, WhereNoneShipsTheErrorSaysWhatToGive) {
  TokenizerSpec spec = tokenizer_spec("sentencepiece");
  spec.files = {.folder = "tokenizer", .config = "tokenizer_path", .bundled = {}};
  spec.pad = 0;
  expect_error(spec, {},
               "no files that fit were found (give model.tokenizer_path, a folder with spiece.model, or "
               "tokenizer.model, or sentencepiece.bpe.model)");
}

TEST_F(TokenizerFiles, VocabularyAndMergesNeedRules) {
  write(dir_ / "vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<x>": 4})");
  write(dir_ / "merges.txt", "a b\n");
  TokenizerSpec spec = tokenizer_spec("bpe");
  try {
    tokenizer_of(dir_, spec)->encode("a");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nothing says how text is cut into words"));
  }
  spec.rules = R"({"pre_tokenizer": {"type": "WhitespaceSplit"}})";
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(tokenizer_of(dir_, spec)->encode("ab ba"), (Ids{2, 1, 0}));
  write(dir_ / "added_tokens.json", R"({"<y>": 7})");
  EXPECT_EQ(tokenizer_of(dir_, spec)->encode("ab<y>a"), (Ids{2, 7, 0}));
  write(dir_ / "tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<z>", "lstrip": true}}})");
  EXPECT_EQ(tokenizer_of(dir_, spec)->encode("ab <z>a"), (Ids{2, 5, 0}));
  write(dir_ / "tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<x>"}}})");
  spec.pad = 0;
  expect_error(spec, {.user = dir_, .checkpoint = {}, .plugin = {}},
               "added token \"<x>\" has id 5, but the vocabulary gives it 4");
  write(dir_ / "tokenizer_config.json", R"({"added_tokens_decoder": {"five": {"content": "<x>"}}})");
  expect_error(spec, {.user = dir_, .checkpoint = {}, .plugin = {}}, "expected an id as key, found \"five\"");
  spec.pad.reset();
  expect_error(spec, {.user = dir_, .checkpoint = {}, .plugin = {}}, "nothing says which token is the pad",
               Code::plugin);
}

TEST_F(TokenizerFiles, TheFingerprintFollowsSpecificationAndFiles) {
  const auto of = [&](const std::function<void(TokenizerSpec&)>& change) {
    TokenizerSpec spec = tokenizer_spec("bpe");
    change(spec);
    return tokenizer_of(dir_, spec)->fingerprint();
  };
  fs::copy_file(qwen_small / "tokenizer.json", dir_ / "tokenizer.json");
  std::vector<std::string> prints{of([](TokenizerSpec&) {})};
  EXPECT_EQ(prints[0], of([](TokenizerSpec& spec) { spec.length = 9; })) << "keys hold the length themselves";
  prints.push_back(of([](TokenizerSpec& spec) { spec.text = "a {prompt}"; }));
  prints.push_back(of([](TokenizerSpec& spec) { spec.pad = 1; }));
  prints.push_back(of([](TokenizerSpec& spec) { spec.pad = "0"; }));
  prints.push_back(of([](TokenizerSpec& spec) { spec.begin = {1}; }));
  prints.push_back(of([](TokenizerSpec& spec) { spec.side = TokenizerSpec::Side::left; }));
  prints.push_back(of([](TokenizerSpec& spec) { spec.drop = 1; }));
  std::ofstream(dir_ / "tokenizer.json", std::ios::app) << " ";
  prints.push_back(of([](TokenizerSpec&) {}));
  for (size_t i = 0; i < prints.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(prints[i], prints[j]) << i << " " << j;
}

}  // namespace
}  // namespace lh::test::tokenizer_files_test
