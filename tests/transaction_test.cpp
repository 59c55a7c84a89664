// A step of a run is whole: whatever a kill, a signal or a lost folder leaves out is made on resuming, and nothing of
// others is touched.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include "support/run_host.h"

namespace lh::test::transaction_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// Every file of the run's folder but the lock and the event files, which are of a process.
std::map<std::string, std::string> tree(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    if (entry.is_regular_file() && name != ".lock" && !name.starts_with("tensorboard") && name != "config.yaml")
      files[name] = get(entry.path());
  }
  return files;
}

std::vector<std::string> names(const std::map<std::string, std::string>& files) {
  std::vector<std::string> all;
  for (const auto& [name, bytes] : files) all.push_back(name);
  return all;
}

void expect_same_tree(const fs::path& got, const fs::path& want) {
  const auto is = tree(got), should = tree(want);
  EXPECT_EQ(names(is), names(should));
  for (const auto& [name, bytes] : should)
    if (is.contains(name)) {
      EXPECT_TRUE(is.at(name) == bytes) << name << " differs";
    }
}

// The same configuration and command in a folder of its own, without any disturbance.
void undisturbed(ToyRun& whole, const ToyRun& run) {
  whole.config() = const_cast<ToyRun&>(run).config();
  whole.replace(run.folder().string(), whole.folder().string());
  expect_trained(whole.train());
}

TEST(Transaction, WhatAKillLeftOutIsMadeOnResuming) {
  ToyRun run, whole;
  run.set("steps", "6").set("prompts", "[a photo, a cat]").set("sample_every", "2");
  undisturbed(whole, run);
  // Killed after the rename of the second state: nothing else of that step is there, or a part of it.
  for (const std::vector<std::string>& missing :
       {std::vector<std::string>{"toy_000000004.safetensors", "samples/000000004_0.png", "samples/000000004_1.png"},
        {"samples/000000004_0.png", "samples/000000004_1.png"},
        {"samples/000000004_1.png"}}) {
    SCOPED_TRACE(testing::PrintToString(missing));
    fs::remove_all(run.output());
    fs::copy(whole.output(), run.output(), fs::copy_options::recursive);
    for (const char* later : {"state/000000006.safetensors", "toy.safetensors", "loss.png", "samples/000000006_0.png",
                              "samples/000000006_1.png"})
      fs::remove(run.output() / later);
    for (const std::string& file : missing) fs::remove(run.output() / file);
    expect_trained(run.train({"--resume"}));
    expect_same_tree(run.output(), whole.output());
  }
}

// Files of an earlier run under this run's names are never counted among its own.
TEST(Transaction, PruningKnowsTheFilesOfTheRun) {
  ToyRun run;
  run.set("steps", "8").set("save_every", "2");
  const fs::path older = run.output() / "toy_000000900.safetensors",
                 oldest = run.output() / "toy_000000001.safetensors";
  put(older, "of an earlier run");
  put(oldest, "of an earlier run");
  expect_trained(run.train());
  EXPECT_EQ(get(older), "of an earlier run");
  EXPECT_EQ(get(oldest), "of an earlier run");
  EXPECT_FALSE(fs::exists(run.output() / "toy_000000002.safetensors"));
  EXPECT_TRUE(fs::exists(run.output() / "toy_000000004.safetensors"));
  EXPECT_TRUE(fs::exists(run.output() / "toy_000000006.safetensors"));
}

TEST(Transaction, StatesToGoOnFromAreChosen) {
  ToyRun run, whole;
  run.set("steps", "4");
  expect_trained(run.train());
  run.set("steps", "6");
  undisturbed(whole, run);
  HostResult result = run.train({"--resume-from", "3"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.output, AllOf(HasSubstr("there is no state of step 3"), HasSubstr("--resume-from 4"),
                                   HasSubstr("--resume-from none")));
  EXPECT_EQ(run.train({"--resume-from", "newest"}).code, 2);
  // One that cannot be read is not passed over.
  const fs::path pipe = run.output() / "state" / "000000005.safetensors";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  result = run.train({"--resume"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.output, HasSubstr("this state may be good, so it is not passed over"));
  fs::remove(pipe);
  result = run.train({"--resume-from", "2"});
  expect_trained(result);
  EXPECT_THAT(result.output, HasSubstr("resuming after step 2"));
  EXPECT_TRUE(fs::exists(run.output() / "state" / "000000004.safetensors.superseded"));
  EXPECT_TRUE(get(run.lora()) == get(whole.lora()));
  fs::remove(run.lora());
  result = run.train({"--resume-from", "none"});
  expect_trained(result);
  EXPECT_TRUE(fs::exists(run.output() / "state" / "000000004.safetensors.superseded.2"));
  EXPECT_THAT(result.output, HasSubstr("starting at step 0"));
  EXPECT_TRUE(get(run.lora()) == get(whole.lora()));
}

// States that are there and are not good never become a run from step 0 over them.
TEST(Transaction, NoGoodStateStopsTheRun) {
  ToyRun run;
  run.set("steps", "2");
  expect_trained(run.train());
  const fs::path state = run.output() / "state" / "000000002.safetensors";
  put(state, "damaged");
  const auto before = tree(run.output());
  const HostResult result = run.train({"--resume"});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.output, AllOf(HasSubstr("There is no good state beside: begin anew with --resume-from none"),
                                   Not(HasSubstr("download"))));
  EXPECT_EQ(names(tree(run.output())), names(before));
  EXPECT_TRUE(tree(run.output()) == before);
}

TEST(Transaction, ALostFolderIsSaidAndTheStateSaved) {
  ToyRun run, whole, later;
  run.set("steps", "100000").set("save_every", "0");
  HostProcess process(run.command());
  ASSERT_TRUE(reaches(process, run, 2)) << process.output();
  fs::remove_all(run.output());
  const HostResult result = process.wait();
  EXPECT_EQ(result.code, 9) << result.output;
  EXPECT_THAT(result.output, HasSubstr("was deleted or moved away"));
  const fs::path rescued = run.output().string() + ".rescued";
  EXPECT_THAT(result.output, HasSubstr("go on with --resume " + rescued.string()));
  int64_t step = 0;
  for (const auto& entry : fs::directory_iterator(rescued / "state")) step = std::stoll(entry.path().stem().string());
  ASSERT_GT(step, 1);
  run.set("steps", std::to_string(step + 1));
  undisturbed(whole, run);
  expect_trained(run.train({"--resume", rescued.string()}));
  EXPECT_TRUE(get(run.lora()) == get(whole.lora()));
}

TEST(Transaction, AHangupSavesAndASecondSignalHurries) {
  ToyRun run, whole;
  run.set("steps", "8").set("save_every", "0");
  undisturbed(whole, run);
  for (const int count : {1, 2}) {
    ::signal(SIGHUP, SIG_DFL);
    HostProcess process(run.command({"--resume"}));
    ASSERT_TRUE(reaches(process, run, run.steps_done() + 1)) << process.output();
    for (int i = 0; i < count; ++i) process.send(SIGHUP);
    const HostResult result = process.wait();
    EXPECT_EQ(result.code, 75) << result.output;
    EXPECT_THAT(result.output, HasSubstr("continue with --resume"));
  }
  expect_trained(run.train({"--resume"}));
  EXPECT_TRUE(get(run.lora()) == get(whole.lora()));
}

TEST(Transaction, TheLockWritesNothingOfOthers) {
  ToyRun run;
  run.set("steps", "1");
  const fs::path mine = run.folder() / "mine.txt", lock = run.output() / ".lock";
  const auto refused = [&](const std::string& why) {
    const HostResult result = run.train();
    EXPECT_EQ(result.code, 4) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr(lock.string()), HasSubstr(why)));
    EXPECT_EQ(get(mine), "1234 is my text");
    fs::remove(lock);
  };
  put(mine, "1234 is my text");
  fs::create_directories(run.output());
  fs::create_symlink(mine, lock);
  refused("a symbolic link");
  fs::create_hard_link(mine, lock);
  refused("another name");
  fs::copy_file(mine, lock);
  refused("other text");
  ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
  refused("no file");
  expect_trained(run.train());
}

}  // namespace
}  // namespace lh::test::transaction_test
