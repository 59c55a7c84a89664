// What may change in a run that goes on, what needs to be allowed, what cannot, and how each is said.
#include <gmock/gmock.h>

#include "support/image_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "train/fact_changes.h"
#include "train/picture_list.h"

namespace lh::test::resume_changes_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// ---- images ---------------------------------------------------------------------------------------------------

Sample sample(const std::string& name, const std::string& content, const std::string& caption = "a thing") {
  Sample made;
  made.image.path = "/photos/" + name;
  made.image.content_hash = content + std::string(64 - content.size(), '0');
  made.texts = {caption};
  made.bucket = {64, 64};
  return made;
}

TEST(PictureList, WhatWasEditedIsSaidByName) {
  const std::vector<Sample> then{sample("a.jpg", "a1"), sample("b.jpg", "b1"), sample("c.jpg", "c1")};
  struct Row {
    void (*edit)(std::vector<Sample>&);
    const char* words;
  };
  for (const Row& row : {
           Row{[](auto&) {}, ""},
           {[](auto& s) { s.pop_back(); }, "1 image removed: c.jpg"},
           {[](auto& s) { s.erase(s.begin(), s.begin() + 2); }, "2 images removed: a.jpg, b.jpg"},
           {[](auto& s) { s.push_back(sample("d.jpg", "d1")); }, "1 image added: d.jpg"},
           {[](auto& s) { s[1] = sample("b.jpg", "b2"); }, "1 image edited: b.jpg"},
           {[](auto& s) { s[0].texts = {"another"}; },
            "1 image with another caption, or other rules of captions: a.jpg"},
           {[](auto& s) { s.push_back(sample("copy of b.jpg", "b1")); },
            "1 image with other captions and settings, or with more or fewer copies of it: b.jpg"},
           {[](auto& s) { s[2].repeats = 3; },
            "1 image with other settings (size, batch size, repeats, masks, further images): c.jpg"},
           {[](auto& s) {
              s.erase(s.begin());
              s.push_back(sample("d.jpg", "d1"));
              s[0].texts = {"x"};
            },
            "1 image removed: a.jpg; 1 image added: d.jpg; 1 image with another caption, or other rules of captions: "
            "b.jpg"},
           {[](auto& s) { s[0].image.path = "/photos/z.jpg"; }, "other names of the same images"},
           // The folder moved: nothing has changed.
           {[](auto& s) {
              for (Sample& one : s) one.image.path = "/elsewhere" / one.image.path.filename();
            },
            ""},
       }) {
    Dataset before, after;
    before.samples = after.samples = then;
    row.edit(after.samples);
    EXPECT_EQ(changes_of_pictures(picture_list(before), picture_list(after)), row.words);
  }
  for (const char* unreadable : {"", "(not recorded)", "[1]", "{", "{\"a\": 1}"}) {
    Dataset after;
    after.samples = then;
    EXPECT_THAT(changes_of_pictures(unreadable, picture_list(after)), HasSubstr("does not say which it had"));
  }
}

TEST(PictureList, NamesThatAreNoTextAreKeptAsOne) {
  Dataset dataset, none;
  dataset.samples = {sample("raw\xff\".jpg", "a1")};
  none.samples = {sample("b.jpg", "b1")};
  EXPECT_THAT(changes_of_pictures(picture_list(none), picture_list(dataset)), HasSubstr("1 image added: raw"));
}

// ---- facts ----------------------------------------------------------------------------------------------------

TEST(FactChanges, WhatMayChangeAndWhatCannot) {
  const std::string digest = "0123456789abcdef", other = "fedcba9876543210";
  struct Row {
    const char *key, *then, *now, *text;
    bool may;
  };
  for (const Row& row : {
           Row{"train.batch_size", "4", "2", "train.batch_size: the saved run has 4, this one 2", true},
           {"train.gradient_accumulation", "1", "2", "train.gradient_accumulation: the saved run has 1, this one 2",
            true},
           {"train.max_grad_norm", "1", "0", "train.max_grad_norm: the saved run has 1, this one 0", true},
           {"objective", "a", "b", "objective: the saved run has a, this one b", true},
           {"device", "x", "y", "device: the saved run has x, this one y", true},
           {"plugin flux", "1", "2", "plugin flux: the saved run has 1, this one 2", true},
           {"network.linear", "16", "8", "network.linear: the saved run has 16, this one 8", false},
           {"network.network_kwargs", digest.c_str(), other.c_str(),
            "network: the saved run has other trained layers or tensors", false},
           {"model", digest.c_str(), other.c_str(), "model: the saved run has another file", false},
           {"tokenizer of t5", digest.c_str(), other.c_str(), "tokenizer of t5: the saved run has another file", false},
           {"network.pretrained_lora_path", digest.c_str(), "none",
            "network.pretrained_lora_path: the saved run has 0123456789abcdef, this one none", false},
       }) {
    const std::vector<FactChange> changes = changed_facts({{row.key, row.then}}, {{row.key, row.now}});
    ASSERT_EQ(changes.size(), 1u) << row.key;
    EXPECT_EQ(changes[0].text, row.text);
    EXPECT_EQ(changes[0].may, row.may) << row.key;
  }
  // Another rank has other tensors: that is said once, and not as a key that nobody touched.
  const Facts rank{{"network.linear", "16"}, {"network.network_kwargs", digest}};
  EXPECT_EQ(changed_facts(rank, {{"network.linear", "8"}, {"network.network_kwargs", other}}).size(), 1u);
  const Facts dropout{{"network.dropout", "0"}, {"network.network_kwargs", digest}};
  EXPECT_EQ(changed_facts(dropout, {{"network.dropout", "0.1"}, {"network.network_kwargs", other}}).size(), 2u);
  EXPECT_TRUE(changed_facts({{"model", "a"}, {"gone", "b"}}, {{"model", "a"}}).empty());
  EXPECT_EQ(changed_facts({}, {{"train.seed", "1"}}).at(0).text,
            "train.seed: the saved run has (not recorded), this one 1");
  // The list of images is no fact of its own.
  EXPECT_TRUE(changed_facts({}, {{pictures_fact, "{}"}}).empty());
}

TEST(FactChanges, SettingsInWords) {
  EXPECT_EQ(changed_settings("train:\n  lr: 1e-4\n  steps: 4\n", "train:\n  lr: 1e-4\n  steps: 4\n"), "");
  EXPECT_EQ(changed_settings("train:\n  lr: 1e-4\n  steps: 4\n", "train:\n  lr: 5e-5\n  steps: 6\nname: x\n"),
            "name (unset) to x, train.lr 1e-4 to 5e-5, train.steps 4 to 6");
  EXPECT_EQ(changed_settings("sample:\n  prompts: [a, b]\n", "sample:\n  prompts: [a]\n"),
            "sample.prompts[1] b to (unset)");
}

// ---- runs -----------------------------------------------------------------------------------------------------

// A run of its own images, after its first two steps.
class ResumeChanges : public testing::Test {
 protected:
  ResumeChanges() {
    const fs::path photos = fs::path(source_dir()) / "examples" / "demo" / "photos";
    fs::create_directory(images());
    for (const char* name : {"cat_01", "cat_02", "cat_03"})
      for (const char* ending : {".jpg", ".txt"})
        fs::copy_file(photos / (name + std::string(ending)), images() / (name + std::string(ending)));
    run_.set("folder_path", images().string()).set("steps", "2");
    expect_trained(run_.train());
    run_.set("steps", "4");
  }
  fs::path images() const { return run_.folder() / "images"; }
  std::string history() const { return get(run_.output() / "history.jsonl"); }
  ToyRun run_;
};

TEST_F(ResumeChanges, WhatIsFreeIsSaid) {
  run_.set("lr", "5e-4").set("save_every", "3").set("prompts", "[a cat]");
  const HostResult result = expect_trained(run_.train({"--resume"}));
  for (const char* words : {"settings since the run was last started: ", "train.lr 0.001 to 0.0005",
                            "train.steps 2 to 4", "save.save_every 2 to 3", "sample.prompts"})
    EXPECT_THAT(result.output, HasSubstr(words));
  EXPECT_THAT(expect_trained(run_.set("steps", "4").train({"--resume"})).output,
              Not(HasSubstr("settings since the run")));
}

TEST_F(ResumeChanges, AnEditedDatasetGoesOnWhereItIsAllowed) {
  fs::remove(images() / "cat_02.jpg");
  write_text(images() / "cat_01.txt", "another caption");
  const HostResult refused = run_.train({"--resume"});
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output,
              AllOf(HasSubstr("datasets: 1 image removed: cat_02.jpg; 1 image with another caption, or other rules of "
                              "captions: cat_01.jpg"),
                    HasSubstr("--allow-changes"), Not(HasSubstr("pretrained_lora_path"))));
  EXPECT_THAT(history(), Not(HasSubstr("break")));

  const HostResult allowed = expect_trained(run_.train({"--resume", "--allow-changes"}));
  EXPECT_THAT(allowed.output, HasSubstr("after step 2: goes on although datasets: 1 image removed: cat_02.jpg"));
  EXPECT_THAT(history(), HasSubstr("{\"step\":2,\"break\":\"datasets: 1 image removed: cat_02.jpg"));
  EXPECT_EQ(run_.steps_done(), 4);
  // From there on it is the run.
  const HostResult again = expect_trained(run_.set("steps", "5").train({"--resume"}));
  EXPECT_THAT(again.output, Not(HasSubstr("goes on although")));
  EXPECT_EQ(run_.steps_done(), 5);
}

TEST_F(ResumeChanges, BatchesAccumulationAndClipping) {
  for (const auto& [key, value] :
       {std::pair{"batch_size", "2"}, {"gradient_accumulation", "2"}, {"max_grad_norm", "0.5"}}) {
    if (std::string(key) == "max_grad_norm")
      run_.replace("  seed: 42", "  seed: 42\n  max_grad_norm: 0.5");
    else
      run_.set(key, value);
    const HostResult refused = run_.train({"--resume"});
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_THAT(refused.output,
                AllOf(HasSubstr(std::string("train.") + key + ": the saved run has 1, this one " + value),
                      HasSubstr("go on all the same with --allow-changes")));
    expect_trained(run_.train({"--resume", "--allow-changes"}));
    EXPECT_THAT(history(), HasSubstr(std::string("\"break\":\"train.") + key));
    run_.set("steps", std::to_string(run_.steps_done() + 2));
  }
  EXPECT_EQ(run_.steps_done(), 8);
}

TEST_F(ResumeChanges, ABreakIsNotReplayed) {
  run_.set("batch_size", "2");
  expect_trained(run_.train({"--resume", "--allow-changes"}));
  run_.replace("name: toy\n", "name: again\n");
  const HostResult refused = run_.train({"--replay", (run_.folder() / "runs" / "toy").string()});
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("that run went on with changes after step 2 (train.batch_size: "));
}

// A run that goes on after a break gives the same bytes whether it is interrupted or not.
TEST_F(ResumeChanges, ARunBehindABreakIsResumedAsItWas) {
  fs::remove(images() / "cat_02.jpg");
  run_.set("save_every", "1").set("steps", "6");
  fs::copy(run_.output(), run_.folder() / "copy", fs::copy_options::recursive);
  expect_trained(run_.train({"--resume", "--allow-changes"}));
  const std::string whole = get(run_.lora());
  fs::remove_all(run_.output());
  fs::copy(run_.folder() / "copy", run_.output(), fs::copy_options::recursive);
  {
    HostProcess process(run_.command({"--resume", "--allow-changes"}));
    reaches(process, run_, 4);
    process.send(SIGKILL);
    process.wait();
  }
  expect_trained(run_.train({"--resume", "--allow-changes"}));
  EXPECT_TRUE(get(run_.lora()) == whole);
}

TEST_F(ResumeChanges, AnotherNetworkCannot) {
  run_.set("linear", "3").set("batch_size", "2");
  const fs::path earlier = run_.output() / "toy_000000001.safetensors";  // a save on the way, whose name sorts last
  fs::copy_file(run_.lora(), earlier);
  fs::last_write_time(earlier, fs::last_write_time(run_.lora()) - std::chrono::seconds(5));
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--resume"}, {"--resume", "--allow-changes"}}) {
    const HostResult refused = run_.train(flags);
    EXPECT_EQ(refused.code, 2) << refused.output;
    EXPECT_THAT(refused.output,
                AllOf(HasSubstr("network.linear: the saved run has 2, this one 3\n"),
                      HasSubstr("train.batch_size: the saved run has 1, this one 2 [--allow-changes would do]"),
                      HasSubstr("network.pretrained_lora_path: " + run_.lora().string())));
  }
  EXPECT_THAT(run_.train({"--allow-changes"}).output, HasSubstr("give --resume too"));
}

}  // namespace
}  // namespace lh::test::resume_changes_test
