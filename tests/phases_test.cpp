// Settings that change within a run: phases, by hand, by another configuration; killed, resumed and repeated, a run
// gives the bits of one that nobody disturbed.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "config/load.h"
#include "config/run_settings.h"
#include "config/schedule_params.h"
#include "io/control.h"
#include "io/history.h"
#include "support/log.h"
#include "support/model_files.h"
#include "support/run_host.h"

namespace lh::test::phases_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TrainSection train_of(const std::string& keys) {
  return parse_config("model: {name_or_path: x}\ndatasets: [{folder_path: d}]\ntrain:\n" + keys, "c.yaml").train;
}

const char* const three_phases =
    "  steps: 100\n"
    "  lr: 1e-3\n"
    "  optimizer_params: {weight_decay: 0.5}\n"
    "  phases:\n"
    "    - {until: 10, optimizer: prodigy, lr: 1}\n"
    "    - {until: 40, lr: 1e-4}\n"
    "    - {lr_scheduler: linear}\n";

TEST(RunSettings, PhasesLieOverTheRest) {
  const TrainSection train = train_of(three_phases);
  const RunSettings first(train);
  EXPECT_EQ(first.train().optimizer, "prodigy");
  EXPECT_EQ(first.train().lr, 1);
  EXPECT_TRUE(first.train().optimizer_params.empty()) << "options of another optimizer";
  EXPECT_EQ(first.phase_at(9), std::nullopt);
  EXPECT_EQ(first.phase_at(10), 1u);
  const RunSettings second(train, 10);
  EXPECT_EQ(second.train().optimizer, "adamw");
  EXPECT_EQ(second.train().optimizer_params.at("weight_decay").value.text, "0.5");
  EXPECT_EQ(second.train().lr, 1e-4);
  EXPECT_EQ(second.schedule_first(), 0);
  EXPECT_EQ(second.schedule_steps(), 100);
  RunSettings third(train, 99);
  EXPECT_EQ(third.train().lr, 1e-3) << "not the lr of the phase before";
  EXPECT_EQ(third.train().lr_scheduler, "linear");
  EXPECT_EQ(third.schedule_first(), 40);
  EXPECT_EQ(third.schedule_steps(), 60);
}

TEST(RunSettings, WhatIsSetByHandStaysUntilTheNextPhase) {
  RunSettings settings(train_of(three_phases), 10);
  settings.set(settings_of({"lr=5e-5", "optimizer_params.betas=[0.8, 0.9]"}), 12, "");
  EXPECT_EQ(settings.train().lr, 5e-5);
  EXPECT_EQ(settings.train().optimizer_params.size(), 2u) << "added to the options of the configuration";
  settings.set(settings_of({"optimizer=lion"}), 13, "");
  EXPECT_EQ(settings.train().lr, 5e-5);
  EXPECT_TRUE(settings.train().optimizer_params.empty());
  settings.set(settings_of({"lr_scheduler=cosine"}), 20, "");
  EXPECT_EQ(settings.schedule_first(), 20);
  EXPECT_EQ(settings.schedule_steps(), 80);
  const RunSettings read = RunSettings::of(settings.text(), "state");
  EXPECT_EQ(read.text(), settings.text());
  EXPECT_EQ(read.summary(), settings.summary());
  EXPECT_EQ(read.schedule_first(), 20);
  settings.enter_phase(2);
  EXPECT_EQ(settings.train().optimizer, "adamw");
  EXPECT_EQ(settings.train().lr, 1e-3);
}

TEST(RunSettings, AnotherConfigurationKeepsWhatItDoesNotChange) {
  RunSettings settings(train_of("  lr: 1e-3\n  optimizer: adamw\n"));
  settings.set(settings_of({"lr=5e-5", "loraplus_lr_ratio=4"}), 5, "");
  settings.replace_file(train_of("  lr: 1e-3\n  optimizer: lion\n"), 8);
  EXPECT_EQ(settings.train().lr, 5e-5);
  EXPECT_EQ(settings.train().optimizer, "lion");
  settings.replace_file(train_of("  lr: 2e-3\n  optimizer: lion\n"), 9);
  EXPECT_EQ(settings.train().lr, 2e-3);
  EXPECT_EQ(settings.train().loraplus_lr_ratio, 4);
}

TEST(RunSettings, TheConfigurationAsTextSaysAllOfIt) {
  const std::string text = RunSettings::file_text(train_of(three_phases));
  EXPECT_EQ(RunSettings::file_text(RunSettings::file_of(text, "t")), text);
  EXPECT_EQ(RunSettings(RunSettings::file_of(text, "t"), 10).summary(),
            RunSettings(train_of(three_phases), 10).summary());
}

TEST(RunSettings, MistakesHaveAPlaceAndTheNearestName) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"  phases: [{until: 5, lr: -1}, {}]\n", "c.yaml:4:27: train.phases: lr: must be more than 0 and at most 100"},
      {"  phases: [{until: 5, optimiser: lion}, {}]\n",
       "c.yaml:4:23: train.phases: optimiser: unknown key. Did you mean optimizer?"},
      {"  phases: [{until: 5, batch_size: 2}, {}]\n", "train.phases: batch_size: cannot change within a run"},
      {"  phases: [{until: 5}, {until: 5}]\n", "until: expected an integer above 5, where the phase before it ends"},
      {"  phases: [{until: x}]\n", "until: expected an integer, at least 1, found"},
      {"  phases: [{lr: 1}, {lr: 2}]\n", "the phase before this one has no `until`"},
      {"  phases: 3\n", "expected a list of mappings"},
  };
  for (const auto& [keys, want] : mistakes) EXPECT_THAT(error_of([&] { train_of(keys); }), HasSubstr(want)) << keys;
  TrainSection train = train_of(three_phases);
  EXPECT_EQ(error_of([&] { check_phases(train); }), "");
  train.steps = 40;
  EXPECT_THAT(error_of([&] { check_phases(train); }),
              HasSubstr("c.yaml:10:7: train.phases: this phase begins after step 40, but the run has 40"));
  train.steps = 100;
  train.phases[2].until = 60;
  EXPECT_THAT(error_of([&] { check_phases(train); }), HasSubstr("nothing says what follows after step 60"));
  for (const char* wrong : {"lr", "=3", "lr=[", "lr=fast", "lr=nan", "steps=5", "optimiser=lion"})
    EXPECT_NE(error_of([&] {
                RunSettings settings(train_of("  lr: 1e-3\n"));
                settings.set(settings_of({wrong}), 0, "");
              }),
              "")
        << wrong;
}

TEST(Schedules, AParameterThatNothingReadsIsRefused) {
  const std::pair<const char*, const char*> rows[] = {
      {"  lr_scheduler_params: {warmup_steps: 5}\n",
       "train.lr_scheduler_params.warmup_steps: lr_scheduler constant does not use it. Use lr_scheduler: "
       "constant_with_warmup, or remove it"},
      {"  lr_scheduler: cosine\n  lr_scheduler_params: {lr_end: 1e-6}\n", "Use lr_scheduler: polynomial, or remove it"},
      {"  phases: [{until: 5}, {lr_scheduler: rex, lr_scheduler_params: {gamma: 0.5}}]\n",
       "c.yaml:4:24: train.lr_scheduler_params.gamma: lr_scheduler rex does not use it"},
      {"  lr_scheduler_params: {warmup_steps: 0, decay_ratio: 0.2}\n", ""},
      {"  lr_scheduler: cosine\n  lr_scheduler_params: {warmup_ratio: 5}\n",
       "train.lr_scheduler_params.warmup_ratio: must be at most 1, a share of all steps, found 5"},
      {"  lr_scheduler: cosine\n  lr_scheduler_params: {warmup_ratio: 0.1, num_cycles: 1}\n", ""},
      {"  lr_scheduler: step\n  lr_scheduler_params: {gamma: 0.5}\n  phases: [{until: 5}, {lr_scheduler: rex}]\n", ""},
  };
  for (const auto& [keys, want] : rows) {
    const std::string error = error_of([&, text = keys] { check_schedules(train_of(text)); });
    EXPECT_THAT(error, HasSubstr(want)) << keys;
    EXPECT_EQ(error.empty(), std::string(want).empty()) << error;
  }
  RunSettings settings(train_of("  lr: 1e-3\n"));
  EXPECT_THAT(error_of([&] { settings.set(settings_of({"lr_scheduler_params.warmup_steps=5"}), 0, "ctl: "); }),
              HasSubstr("ctl: train.lr_scheduler_params.warmup_steps: lr_scheduler constant does not use it"));
}

// As elsewhere it is no error, but the rate that was asked for is never reached.
TEST(Schedules, OneThatIsLongerThanTheRunIsSaid) {
  const std::pair<const char*, const char*> rows[] = {
      {"  steps: 50\n  lr_scheduler: cosine\n  lr_scheduler_params: {warmup_steps: 100}\n",
       "here: train.lr_scheduler_params: 100 steps of warm-up in 50 steps: the learning rate never comes above 50% of "
       "lr. Set fewer, or more train.steps"},
      {"  steps: 50\n  lr_scheduler: cosine\n  lr_scheduler_params: {warmup_steps: 50}\n", "50 steps of warm-up in 50"},
      {"  steps: 50\n  lr_scheduler: cosine\n  lr_scheduler_params: {warmup_steps: 49}\n", ""},
      {"  steps: 50\n  lr_scheduler: cosine\n  lr_scheduler_params: {warmup_ratio: 1}\n", "50 steps of warm-up in 50"},
      {"  steps: 50\n  lr_scheduler: linear\n  lr_scheduler_params: {warmup_steps: 30, decay_steps: 30}\n",
       "30 steps of warm-up and 30 of decay in 50 steps: the learning rate never comes above 83% of lr"},
      {"  steps: 50\n  lr_scheduler_params: {decay_steps: 51}\n", "0 steps of warm-up and 51 of decay in 50"},
      {"  steps: 50\n  lr_scheduler_params: {decay_steps: 50}\n", ""},
      {"  steps: 50\n  phases: [{until: 40}, {lr_scheduler: rex, lr_scheduler_params: {warmup_steps: 20}}]\n",
       "c.yaml:5:25: train.lr_scheduler_params: 20 steps of warm-up in 10 steps"},
      {"  steps: 50\n  lr_scheduler: rex\n  lr_scheduler_params: {warmup_steps: 20}\n  phases: [{until: 10}, {lr: "
       "1}]\n",
       ""},
  };
  for (const auto& [keys, want] : rows) {
    take_warnings();
    warn_of_long_schedules(train_of(keys), "here: ");
    const std::vector<std::string> warnings = take_warnings();
    EXPECT_EQ(warnings.size(), std::string(want).empty() ? 0u : 1u) << keys;
    for (const std::string& warning : warnings) EXPECT_THAT(warning, HasSubstr(want)) << keys;
  }
}

TEST(HistoryFile, IsWhatWasWritten) {
  const TempDir dir;
  const fs::path file = dir.path() / "history.jsonl";
  History history(file);
  history.insert(0, {0, "file", "{steps: 3}"});
  history.insert(1, {5, "set", R"({"lr": 1e-5})"});
  history.insert(1, {2, "phase", "1"});
  EXPECT_EQ(History(file).changes(), history.changes());
  history.keep(2);
  EXPECT_EQ(History(file).changes().size(), 2u);
  for (const char* wrong : {"{}", "x", R"({"step":1})", R"({"step":-1,"set":"{}"})",
                            R"({"step":1,"set":"{}","more":1})", R"({"step":1,"set":3})"}) {
    put(file, std::string(R"({"step":0,"file":"{}"})") + "\n" + wrong + "\n");
    EXPECT_THAT(error_of([&] { const History read(file); }),
                HasSubstr("history.jsonl:2: this is no line of a history"));
  }
  put(file, "{\"step\":4,\"file\":\"{}\"}\n{\"step\":3,\"set\":\"{}\"}\n");
  EXPECT_THAT(error_of([&] { const History read(file); }), HasSubstr("its step is below"));
}

TEST(Control, OneAnswerForEachRequest) {
  const TempDir dir;
  const fs::path folder = dir.path() / std::string(120, 'x');  // longer than the address of a socket may be
  fs::create_directory(folder);
  ControlSocket socket(folder);
  struct stat info {};
  ASSERT_EQ(::stat((folder / "ctl.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_FALSE(socket.waiting());
  ControlAnswer heard;
  std::thread asker([&] { heard = ask_run(folder, {"set", {"lr=1", "x \"y\"\n"}}); });
  while (!socket.waiting()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto request = socket.next();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->command, "set");
  EXPECT_THAT(request->arguments, testing::ElementsAre("lr=1", "x \"y\"\n"));
  socket.answer({7, "no\nmore"});
  asker.join();
  EXPECT_EQ(heard.status, 7);
  EXPECT_EQ(heard.text, "no\nmore");
}

TEST(Control, NobodyThereAndTheEndOfARun) {
  const TempDir dir;
  EXPECT_THAT(error_of([&] { ask_run(dir.path(), {"status", {}}); }), HasSubstr("no run is live there"));
  EXPECT_THAT(error_of([&] { ask_run(dir.path() / "none", {"status", {}}); }), HasSubstr("found no folder"));
  auto socket = std::make_unique<ControlSocket>(dir.path());
  ControlAnswer heard;
  std::thread asker([&] { heard = ask_run(dir.path(), {"status", {}}); });
  while (!socket->waiting()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  socket.reset();
  asker.join();
  EXPECT_EQ(heard.text, "the run has ended");
  EXPECT_FALSE(fs::exists(dir.path() / "ctl.sock"));
}

// A run whose optimizer changes twice, to one with states of tensors and of groups and weights of its own.
void make_phased(ToyRun& run) {
  run.set("steps", "9")
      .set("save_every", "1")
      .replace(
          "train:\n",
          "train:\n  phases:\n    - {until: 3, optimizer: schedulefree_adamw, lr: 1e-3}\n    - {until: 6, optimizer: "
          "prodigy, lr: 1, lr_scheduler: linear}\n    - {loraplus_lr_ratio: 4}\n");
}

HostResult ctl(const ToyRun& run, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"ctl", run.output().string()});
  return run_host(arguments);
}

// Waits until the run has done so many steps; it then stands still until told otherwise.
void pause_after(HostProcess& process, const ToyRun& run, int64_t step) {
  reaches(process, run, step);
  EXPECT_THAT(ask_run(run.output(), {"pause", {}}).text, HasSubstr("paused after step"));  // before a GPU is through
}

std::vector<std::string> after_step_zero(const ToyRun& run) {
  std::vector<std::string> lines;
  const History history(run.output() / "history.jsonl");
  for (const lh::Change& change : history.changes())
    if (change.step > 0) lines.push_back(fmt::format("{} {} {}", change.step, change.kind, change.value));
  return lines;
}

std::string lora_of(const ToyRun& run) { return get(run.lora()); }

TEST(Phases, AreKilledAndResumedWithoutADifference) {
  ToyRun whole;
  make_phased(whole);
  expect_trained(whole.train());
  EXPECT_THAT(after_step_zero(whole), testing::ElementsAre("3 phase 1", "6 phase 2"));
  const std::string expected = lora_of(whole), history = get(whole.output() / "history.jsonl");
  std::mt19937_64 random(std::random_device{}());
  const int wanted = sanitized ? 3 : 20;
  int kills = 0;
  while (kills < wanted) {
    ToyRun run;
    make_phased(run);
    for (bool done = false; kills < wanted && !done;) {
      HostProcess process(run.command({"--resume"}));
      reaches(process, run, run.steps_done() + static_cast<int64_t>(random() % 2));
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
      process.send(SIGKILL);
      const HostResult result = process.wait();
      done = result.signal != SIGKILL;  // it ended just before
      if (!done) ++kills;
    }
    expect_trained(run.train({"--resume"}));
    EXPECT_TRUE(lora_of(run) == expected) << "after " << kills << " kills";
    EXPECT_EQ(get(run.output() / "history.jsonl"), history);
  }
}

TEST(Ctl, WhatIsSetIsRepeatedAfterAKillAndByReplay) {
  ToyRun run;
  run.set("steps", "30").set("save_every", "5");
  {
    HostProcess process(run.command());
    pause_after(process, run, 6);
    const int64_t step = run.steps_done();
    const HostResult lion = ctl(run, {"set", "optimizer=lion", "lr=1e-4"});
    EXPECT_EQ(lion.code, 0) << lion.output;
    EXPECT_THAT(lion.output, HasSubstr(fmt::format("from step {} on: optimizer lion, lr 0.0001; optimizer 'lion' takes "
                                                   "over from 'adamw': kept m; begun anew: none",
                                                   step + 1)));
    EXPECT_THAT(ctl(run, {"save"}).output, HasSubstr(".safetensors"));
    EXPECT_EQ(ctl(run, {"set", "lr=5e-5", "optimizer_params.weight_decay=0.1"}).code, 0);
    EXPECT_THAT(ctl(run, {"status"}).output, HasSubstr(fmt::format("step {} of 30, paused", step)));
    process.send(SIGKILL);  // its last state has the first change, its history both
    EXPECT_EQ(process.wait().signal, SIGKILL);
  }
  expect_trained(run.train({"--resume"}));
  EXPECT_EQ(after_step_zero(run).size(), 2u);
  ToyRun again;
  again.config() = run.config();
  again.replace(run.folder().string(), again.folder().string());
  expect_trained(again.train({"--replay", run.output().string()}));
  EXPECT_TRUE(lora_of(again) == lora_of(run)) << "the same history gives other bits";
  EXPECT_EQ(get(again.output() / "history.jsonl"), get(run.output() / "history.jsonl"));
  ToyRun plain;
  plain.config() = run.config();
  plain.replace(run.folder().string(), plain.folder().string());
  expect_trained(plain.train());
  EXPECT_FALSE(lora_of(plain) == lora_of(run)) << "the changes changed nothing";
}

TEST(Ctl, WordsThatAreNoText) {
  const HostResult result = run_host({"ctl", "/nowhere", "sample", "caf\xe9"});
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("ctl sample: byte 3 (0xe9) of caf\xe9 is not valid UTF-8"));
}

TEST(Ctl, MistakesAreAnsweredAndTheRunGoesOn) {
  ToyRun run;
  run.set("steps", "30").set("save_every", "0");
  HostProcess process(run.command());
  pause_after(process, run, 1);
  const std::tuple<std::vector<std::string>, int, const char*> mistakes[] = {
      {{"set", "lr=-1"}, 2, "lr: must be more than 0"},
      {{"set", "optimizer=adamv"}, 2, "adamw"},
      {{"set", "optimizer_params.epz=1"}, 2, "eps"},
      {{"set", "steps=9"}, 2, "cannot change within a run"},
      {{"set"}, 2, "expected what with"},
      {{"sot", "lr=1"}, 2, "Did you mean set?"},
      {{"sample", "a cat"}, 2, "no memory is set aside for samples"},
      {{"stop", "now"}, 2, "takes no arguments"},
  };
  for (const auto& [arguments, code, want] : mistakes) {
    const HostResult result = ctl(run, arguments);
    EXPECT_EQ(result.code, code) << arguments[0] << ": " << result.output;
    EXPECT_THAT(result.output, HasSubstr(want));
  }
  EXPECT_TRUE(after_step_zero(run).empty());
  EXPECT_THAT(ctl(run, {"set", "optimizer=prodigy"}).output, HasSubstr("is far below 1, which is usual for prodigy"));
  EXPECT_THAT(ctl(run, {"resume"}).output, HasSubstr("goes on with step"));
  const HostResult ended = process.wait();
  expect_trained(ended);
  EXPECT_THAT(ended.output, HasSubstr("nothing is saved before the last step, 30"));
  EXPECT_EQ(ctl(run, {"status"}).code, 4);
}

TEST(Ctl, StopSavesAndSampleMakesImages) {
  ToyRun run;
  run.set("steps", "40").set("save_every", "0").set("prompts", "[a cat]").set("sample_every", "100");
  HostProcess process(run.command());
  pause_after(process, run, 1);
  const HostResult sample = ctl(run, {"sample", "a dog"});
  EXPECT_EQ(sample.code, 0) << sample.output;
  std::string path = sample.output.substr(0, sample.output.find('\n'));
  EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_THAT(path, HasSubstr("samples/asked_"));
  EXPECT_THAT(ctl(run, {"stop"}).output, HasSubstr("stops after step"));
  EXPECT_EQ(process.wait().code, 75);
  EXPECT_FALSE(fs::is_empty(run.output() / "state"));
}

TEST(ResumedSettings, AnotherConfigurationIsAChange) {
  ToyRun run;
  run.set("steps", "3");
  expect_trained(run.train());
  run.set("steps", "6").set("optimizer", "lion");
  const HostResult lion = run.train({"--resume"});
  expect_trained(lion);
  EXPECT_THAT(lion.output, HasSubstr("optimizer 'lion' takes over from 'adamw': kept m"));
  ASSERT_EQ(after_step_zero(run).size(), 1u);
  EXPECT_THAT(after_step_zero(run)[0], HasSubstr("3 file {steps: 6"));
  const HostResult wrong = run.train({"--replay", run.output().string()});
  EXPECT_EQ(wrong.code, 2) << "into a folder that holds a run";
}

TEST(ResumedSettings, ARefusedRunLeavesTheHistoryAsItIs) {
  ToyRun run;
  run.set("steps", "3");
  expect_trained(run.train());
  const std::string history = get(run.output() / "history.jsonl");
  run.set("steps", "1");
  const HostResult refused = run.train({"--resume"});
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("train.steps: the run has 3 steps behind it, 1 were asked for"));
  EXPECT_EQ(get(run.output() / "history.jsonl"), history);
}

TEST(ResumedSettings, ANewStartInAFolderThatWentOnFromAnother) {
  ToyRun first;
  first.set("steps", "2");
  expect_trained(first.train());
  ToyRun second;
  second.set("steps", "3");
  expect_trained(second.train({"--resume", first.output().string()}));
  const auto begins_at = [&] { return History(second.output() / "history.jsonl").changes().at(0).step; };
  EXPECT_EQ(begins_at(), 2);
  // Without a state there is nothing to go on from, and step 0 is not where this run began.
  fs::rename(second.output() / "state", second.folder() / "state");
  const HostResult gone = second.train({"--resume"});
  EXPECT_EQ(gone.code, 3) << gone.output;
  EXPECT_THAT(gone.output, HasSubstr("went on from step 2 of another one"));
  fs::remove_all(second.output() / "state");
  fs::rename(second.folder() / "state", second.output() / "state");
  expect_trained(second.train({"--resume", "--resume-from", "none"}));
  EXPECT_EQ(begins_at(), 0);
  second.set("steps", "4");
  expect_trained(second.train({"--resume"}));
}

}  // namespace
}  // namespace lh::test::phases_test
