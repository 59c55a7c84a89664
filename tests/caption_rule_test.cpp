// Captions that are drawn: what is made of a text in each use, that it is a function of the place in the run, and files
// that captions come from.
#include "data/caption_rule.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/error.h"
#include "data/caption_files.h"
#include "data/run_captions.h"
#include "support/image_files.h"

namespace lh::caption_rule_test {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

using Texts = std::vector<std::string>;

// What is made of a text in so many uses, each once.
std::set<std::string> made(const DatasetConfig& dataset, const Texts& texts, const std::string& trigger = "",
                           int64_t uses = 400) {
  const CaptionRule rule(dataset, trigger);
  std::set<std::string> all;
  for (int64_t i = 0; i < uses; ++i) all.insert(rule.caption(texts, 5, {.seed = 7, .micro_step = i, .steps = uses}));
  return all;
}

struct Row {
  std::string what;
  DatasetConfig dataset;
  Texts texts;
  std::string trigger;
  std::set<std::string> captions;  // all that there can be
};

DatasetConfig with(const std::function<void(DatasetConfig&)>& change) {
  DatasetConfig dataset;
  change(dataset);
  return dataset;
}

TEST(CaptionRule, MakesTheseAndNoOthers) {
  const Row rows[] = {
      {"as it stands", {}, {"b, a"}, "", {"b, a"}},
      {"prefix and suffix",
       with([](auto& d) { d.caption_prefix = "photo of", d.caption_suffix = "outside"; }),
       {"a"},
       "sks",
       {"sks, photo of a outside"}},
      {"replaced, one after the other, before anything else",
       with([](auto& d) {
         d.replacements = {"a cat|[trigger]", "tree|"}, d.caption_prefix = "a cat and";
       }),
       {"a cat, tree"},
       "sks",
       {"a cat and sks, "}},
      {"one of random words behind the caption",
       with([](auto& d) {
         d.random_triggers = {"x", "y"};
       }),
       {"a"},
       "sks",
       {"sks, a, x", "sks, a, y"}},
      {"none to two of them",
       with([](auto& d) {
         d.random_triggers = {"x", "y"}, d.random_triggers_max = 2;
       }),
       {"a"},
       "",
       {"a", "a, x", "a, y", "a, x, y", "a, y, x"}},
      {"shuffled", with([](auto& d) { d.shuffle_tokens = "true"; }), {"a,b"}, "", {"a, b", "b, a"}},
      {"the first is kept",
       with([](auto& d) { d.shuffle_tokens = "true", d.keep_tokens = 1; }),
       {"a, b, c"},
       "",
       {"a, b, c", "a, c, b"}},
      {"the trigger word goes in front",
       with([](auto& d) { d.shuffle_tokens = "true"; }),
       {"a, b"},
       "sks",
       {"sks, a, b", "sks, b, a"}},
      {"or anywhere", with([](auto& d) { d.shuffle_tokens = "all"; }), {"a"}, "sks", {"sks, a", "a, sks"}},
      {"kept before and behind the separator",
       with([](auto& d) { d.shuffle_tokens = "true", d.keep_tokens_separator = "|||", d.keep_tokens = 3; }),
       {"a ||| b, c ||| d"},
       "",
       {"a, b, c, d", "a, c, b, d"}},
      {"without the separator keep_tokens counts",
       with([](auto& d) { d.shuffle_tokens = "true", d.keep_tokens_separator = "|||", d.keep_tokens = 9; }),
       {"a, b"},
       "",
       {"a, b"}},
      {"tags that stay together",
       with([](auto& d) { d.shuffle_tokens = "true", d.secondary_separator = ";;;"; }),
       {"a;;;b, c"},
       "",
       {"a,b, c", "c, a,b"}},
      {"another separator",
       with([](auto& d) { d.shuffle_tokens = "true", d.caption_separator = "."; }),
       {"a, b. c"},
       "",
       {"a, b, c", "c, a, b"}},
      {"wildcards",
       with([](auto& d) { d.enable_wildcard = true; }),
       {"a {red|blue} {x} {{z}} }"},
       "",
       {"a red x {z} }", "a blue x {z} }"}},
      {"an empty choice", with([](auto& d) { d.enable_wildcard = true; }), {"a{ b|}{}{"}, "", {"a b{}{", "a{}{"}},
      {"braces are only text without it", {}, {"{a|b}"}, "", {"{a|b}"}},
      {"several texts", {}, {"a", "b", "c"}, "", {"a", "b", "c"}},
      {"all tags dropped but the kept one and the trigger word",
       with([](auto& d) { d.token_dropout_rate = 1, d.keep_tokens = 1; }),
       {"a, b, c"},
       "sks",
       {"sks, a"}},
      {"some tags dropped", with([](auto& d) { d.token_dropout_rate = 0.5; }), {"a, b"}, "", {"", "a", "b", "a, b"}},
      {"regularization images do not get the trigger word",
       with([](auto& d) { d.is_reg = true; }),
       {"a [trigger] dog"},
       "sks",
       {"a sks dog"}},
      {"nor in front", with([](auto& d) { d.is_reg = true; }), {"a dog"}, "sks", {"a dog"}},
      {"dropped by chance", with([](auto& d) { d.caption_dropout_rate = 0.5; }), {"a"}, "sks", {"", "sks, a"}},
  };
  for (const Row& row : rows) EXPECT_EQ(made(row.dataset, row.texts, row.trigger), row.captions) << row.what;
}

TEST(CaptionRule, SaysWhetherCaptionsVary) {
  const auto varies = [](const DatasetConfig& d, const Texts& texts) { return CaptionRule(d, "").varies(texts); };
  EXPECT_FALSE(varies({}, {"a, b"}));
  EXPECT_FALSE(varies(with([](auto& d) { d.caption_dropout_rate = 0.5; }), {"a"})) << "said by drops()";
  EXPECT_FALSE(varies(with([](auto& d) { d.enable_wildcard = true; }), {"a"}));
  EXPECT_TRUE(varies(with([](auto& d) { d.enable_wildcard = true; }), {"{a|b}"}));
  EXPECT_TRUE(varies({}, {"a", "b"}));
  EXPECT_TRUE(varies(with([](auto& d) { d.token_warmup_step = 5; }), {"a"}));
}

// Of 10 tags, 2 at first and all after 8 steps: floor(step (10 - 2) / 8) + 2.
TEST(CaptionRule, TagsComeBackDuringTheWarmUp) {
  const Texts texts{"0, 1, 2, 3, 4, 5, 6, 7, 8, 9"};
  for (const double warmup : {8.0, 0.08}) {  // of 100 steps
    const CaptionRule rule(with([&](auto& d) { d.token_warmup_step = warmup, d.token_warmup_min = 2; }), "");
    for (int64_t step = 0; step < 12; ++step) {
      const std::string caption = rule.caption(texts, 0, {.micro_step = 3 * step, .step = step, .steps = 100});
      EXPECT_EQ(std::ranges::count(caption, ',') + 1, std::min<int64_t>(10, step + 2)) << step << ": " << caption;
    }
  }
}

TEST(CaptionRule, EveryThirdEpochIsWithoutCaptions) {
  const CaptionRule rule(with([](auto& d) { d.caption_dropout_every_n_epochs = 3; }), "");
  std::string dropped;
  for (int64_t epoch = 0; epoch < 9; ++epoch) dropped += rule.caption({"a"}, 0, {.epoch = epoch}).empty() ? 'x' : '.';
  EXPECT_EQ(dropped, "..x..x..x");
}

TEST(CaptionRule, VariantsBelongToTheImage) {
  const Texts texts{"a, b, c, d, e, f, g"};
  const DatasetConfig few = with([](auto& d) { d.shuffle_tokens = "true", d.caption_variants = 5; });
  const std::set<std::string> one = made(few, texts);
  EXPECT_EQ(one.size(), 5u);
  const CaptionRule rule(few, "");
  std::set<std::string> later, of_another;
  for (int64_t i = 5000; i < 5400; ++i) {
    later.insert(rule.caption(texts, 5, {.seed = 7, .micro_step = i}));
    of_another.insert(rule.caption(texts, 6, {.seed = 7, .micro_step = i}));
  }
  EXPECT_EQ(later, one);
  EXPECT_NE(of_another, one);
}

// The mean of 4000 draws at 0.3 is within five of its standard deviations, 0.0072.
TEST(CaptionRule, TagsAreDroppedAtTheirRate) {
  const CaptionRule rule(with([](auto& d) { d.token_dropout_rate = 0.3; }), "");
  int64_t there = 0;
  for (int64_t i = 0; i < 1000; ++i)
    there += std::ranges::count_if(rule.caption({"a, b, c, d"}, 0, {.seed = 3, .micro_step = i}),
                                   [](char c) { return c >= 'a' && c <= 'd'; });
  EXPECT_NEAR(static_cast<double>(there) / 4000, 0.7, 0.037);
}

Dataset two_images(const DatasetConfig& config, int64_t batch_size = 1) {
  Dataset dataset;
  for (const char* text : {"a, b, c, d", "e, f, g, h"}) {
    Sample sample;
    sample.texts = {text};
    sample.rule = CaptionRule(config, "sks");
    sample.caption = sample.rule.plain(text);
    sample.batch_size = batch_size;
    dataset.samples.push_back(std::move(sample));
  }
  return dataset;
}

// N processes with accumulation A are one with N A: a caption depends on the micro-step of the whole run.
TEST(RunCaptions, AreAllThatTheRunUsesAndNoOthers) {
  const Dataset dataset =
      two_images(with([](auto& d) { d.shuffle_tokens = "true", d.caption_dropout_rate = 0.2, d.keep_tokens = 1; }), 3);
  BatchOrder order(dataset, 11, 2);
  const RunCourse course{.seed = 11, .batches_per_epoch = order.batches_per_epoch(), .micro_batches = 2, .steps = 10};
  const RunCaptions captions(dataset, order, course, PreservedPrompts(Config{}), 1000);
  EXPECT_TRUE(captions.complete());
  EXPECT_FALSE(RunCaptions(dataset, order, course, PreservedPrompts(Config{}), 4).complete());
  EXPECT_EQ(captions.varying(), 2);
  std::set<std::string> used{""};
  for (int64_t micro = 0; micro < 20; ++micro) {
    const Batch batch = order.at(micro);
    for (uint32_t lane = 0; lane < 3; ++lane) {
      const Sample& sample = dataset.samples[static_cast<size_t>(batch.samples[lane])];
      const std::string caption = caption_at(course, sample, micro, lane);
      EXPECT_EQ(caption, caption_at(course, sample, micro, lane));
      EXPECT_TRUE(captions.of(static_cast<size_t>(batch.samples[lane])).contains(&*captions.all().find(caption)));
      used.insert(caption);
    }
  }
  EXPECT_EQ(captions.all(), used);
  EXPECT_GT(used.size(), 6u);
}

TEST(CaptionRule, WordsOfAFileAndWordsThatAreNone) {
  const test::TempFolder folder("lora_random_triggers");
  test::write_text(folder / "words.txt", "x\n\n y \n");
  EXPECT_EQ(made(with([&](auto& d) { d.random_triggers = {(folder / "words.txt").string()}; }), {"a"}),
            (std::set<std::string>{"a, x", "a, y"}));
  const auto error = [](const DatasetConfig& dataset) -> std::string {
    try {
      const CaptionRule rule(dataset, "");
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  for (const char* none : {"a cat", "|b", "a|b|c"})
    EXPECT_THAT(error(with([&](auto& d) { d.replacements = {none}; })),
                HasSubstr(std::string("found \"") + none + '"'));
  EXPECT_THAT(error(with([](auto& d) { d.random_triggers = {"x"}, d.random_triggers_max = 2; })),
              HasSubstr("2 cannot be drawn of 1 words"));
}

// The prompts of a second loss are known before the first step, too: one for each caption that there will be.
TEST(RunCaptions, HavePreservedOnes) {
  const Dataset dataset = two_images(with([](auto& d) { d.shuffle_tokens = "true", d.caption_dropout_rate = 0.2; }), 2);
  Config config;
  config.trigger_word = "sks";
  config.train.diff_output_preservation = true;
  config.train.diff_output_preservation_class = "dog";
  BatchOrder order(dataset, 11);
  const RunCourse course{.seed = 11, .batches_per_epoch = order.batches_per_epoch(), .steps = 8};
  const RunCaptions captions(dataset, order, course, PreservedPrompts(config), 1000);
  std::set<std::string> want;
  for (std::string caption : captions.all()) {
    if (const size_t at = caption.find("sks"); at != caption.npos) caption.replace(at, 3, "dog");
    want.insert(caption);
  }
  EXPECT_EQ(captions.preserved(), want);
  EXPECT_TRUE(want.contains("")) << "of a caption that was dropped";
  const auto all = static_cast<int64_t>(captions.all().size() + captions.preserved().size());
  EXPECT_TRUE(RunCaptions(dataset, order, course, PreservedPrompts(config), all).complete());
  EXPECT_FALSE(RunCaptions(dataset, order, course, PreservedPrompts(config), all - 1).complete());
  config.train.diff_output_preservation = false;
  config.train.blank_prompt_preservation = true;
  EXPECT_THAT(RunCaptions(dataset, order, course, PreservedPrompts(config), 1000).preserved(), ElementsAre(""));
}

TEST(RunCaptions, WithoutDrawsEveryImageHasItsOwn) {
  const Dataset dataset = two_images({});
  BatchOrder order(dataset, 11);
  const RunCaptions captions(dataset, order, {.batches_per_epoch = 2, .steps = 1}, PreservedPrompts(Config{}), 2);
  EXPECT_THAT(captions.all(), UnorderedElementsAre("sks, a, b, c, d", "sks, e, f, g, h"));
  EXPECT_EQ(captions.varying(), 0);
}

struct FileRow {
  std::string name, content, lines;
  Texts texts;
};

TEST(CaptionFiles, Table) {
  const test::TempFolder folder("lora_caption_files");
  for (const FileRow& row : std::vector<FileRow>{
           {"a.txt", "one\n two \n\nthree\n", "whole", {"one\n two \n\nthree"}},
           {"a.txt", "one\n two \n\nthree\n", "first", {"one"}},
           {"a.txt", "one\r\n two \n\nthree\n", "any", {"one", "two", "three"}},
           {"a.txt", "\n", "any", {""}},
           {"a.json", R"({"caption": "a cat", "tags": "x, y"})", "whole", {"a cat, x, y"}},
           {"a.json",
            R"({"caption": ["a cat", "a tom"], "tags": ["x", "y"]})",
            "whole",
            {"a cat, x, y", "a tom, x, y"}},
           {"a.json", R"({"tags": ["x", "y"], "score": 3})", "whole", {"x, y"}},
           {"a.json", R"({"text": "a\nb"})", "any", {"a", "b"}},
           {"a.json", R"("a cat")", "whole", {"a cat"}},
           {"a.json", R"({"score": 3})", "whole", {}},
       }) {
    test::write_text(folder / row.name, row.content);
    DatasetConfig dataset;
    dataset.caption_lines = row.lines;
    EXPECT_EQ(read_texts(folder / row.name, dataset), row.texts) << row.content;
  }
  for (const auto& [content, part] : std::vector<std::pair<std::string, std::string>>{
           {"{\"caption\": 3}", "caption: expected a text or a list of texts, found 3"},
           {"{\"caption\": [\"a\", 3]}", "expected a text or a list of texts"},
           {"[1]", "expected a mapping with caption"},
           {"{\"caption\"", "not JSON: line 1, column 11: "}}) {
    test::write_text(folder / "a.json", content);
    try {
      read_texts(folder / "a.json", {});
      ADD_FAILURE() << content;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("a.json"), HasSubstr(part)));
    }
  }
}

TEST(CaptionFiles, MetadataNamesImages) {
  const test::TempFolder folder("lora_metadata");
  for (const char* name : {"a.png", "b.png", "sub/c.jpg"}) {
    std::filesystem::create_directories((folder / name).parent_path());
    test::write_text(folder / name, "");
  }
  DatasetConfig dataset;
  dataset.folder_path = folder.path();
  const auto read = [&](const std::string& name, const std::string& content, Texts& problems) {
    test::write_text(folder / name, content);
    dataset.metadata_file = folder / name;
    return read_metadata(dataset, problems);
  };
  Texts problems;
  EXPECT_THAT(
      read("m.json",
           R"({"a.png": {"caption": "one"}, "sub/c": {"caption": "two", "tags": "x"}, ")" +
               (folder / "b.png").string() + R"(": "three"})",
           problems),
      UnorderedElementsAre(Pair(folder / "a.png", ElementsAre("one")), Pair(folder / "b.png", ElementsAre("three")),
                           Pair(folder / "sub/c.jpg", ElementsAre("two, x"))));
  EXPECT_THAT(
      read("m.jsonl",
           "{\"image_path\": \"a.png\", \"caption\": \"one\"}\n\n{\"file_name\": \"b.png\", \"text\": \"two\"}\n",
           problems),
      UnorderedElementsAre(Pair(folder / "a.png", ElementsAre("one")), Pair(folder / "b.png", ElementsAre("two"))));
  EXPECT_THAT(problems, testing::IsEmpty());
  read("m.jsonl", "{\"image_path\": \"z.png\"}\n{\"caption\": \"one\"}\nx\n", problems);
  EXPECT_THAT(problems,
              ElementsAre(HasSubstr("m.jsonl:2: expected a mapping with image_path"), HasSubstr("m.jsonl:3: not JSON"),
                          HasSubstr("m.jsonl: 1 images that it names are not there: z.png")));

  // An image that is there twice: none of its texts is passed over without a word.
  const auto problems_of = [&](const std::string& name, const std::string& content) {
    Texts found;
    read(name, content, found);
    return found;
  };
  EXPECT_THAT(
      problems_of("m.jsonl",
                  "{\"image_path\": \"a.png\", \"caption\": \"one\"}\n"
                  "{\"image_path\": \"a\", \"caption\": \"two\"}\n"),
      ElementsAre(testing::AllOf(HasSubstr("m.jsonl:2: a is there twice, first in "), HasSubstr("m.jsonl:1:"))));
  EXPECT_THAT(problems_of("m.json", R"({"a.png": "one", "b.png": {"a.png": "x"}, "a.png": "two"})"),
              ElementsAre(HasSubstr("m.json: a.png is there twice")));  // a key within an entry is none
  // Messages and copies go level by level on the stack.
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  EXPECT_THAT(problems_of("m.json", "{\"a.png\": " + deep + "}"),
              ElementsAre(HasSubstr("m.json: 300001 levels of lists and objects, expected at most")));
  EXPECT_THAT(problems_of("m.jsonl", deep), ElementsAre(HasSubstr("m.jsonl:1: 300000 levels of lists and objects")));
}

TEST(CaptionFiles, ReferencePicturesAreNumbered) {
  const test::TempFolder folder("lora_controls");
  for (const char* name : {"a.png", "b.png", "c.png", "d.png"}) test::write_text(folder / name, "");
  test::write_text(folder / "m.jsonl",
                   R"({"image_path": "a.png", "control_path": "b.png", "control_path_1": "c.png", )"
                   R"("control_path2": "d.png", "control_paths": "d.png", "control_pathX1": "d.png"})");
  DatasetConfig dataset;
  dataset.folder_path = folder.path();
  Texts problems;
  const auto of = [&](int64_t number) { return read_control_paths(dataset, folder / "m.jsonl", number, problems); };
  EXPECT_THAT(of(0), ElementsAre(Pair(folder / "a.png", folder / "b.png")));
  EXPECT_THAT(of(1), ElementsAre(Pair(folder / "a.png", folder / "c.png")));
  EXPECT_THAT(of(2), testing::IsEmpty());
  EXPECT_THAT(problems, testing::IsEmpty());
}

}  // namespace
}  // namespace lh::caption_rule_test
