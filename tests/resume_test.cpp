// A run that is killed, stopped or crowded ends with the very file that an undisturbed run gives.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "support/model_files.h"
#include "support/run_host.h"

namespace lh::test::resume_test {
namespace {

namespace fs = std::filesystem;

uint64_t seed_of_this_run() {
  const char* given = std::getenv("LORA_TEST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

// The LoRA that the run gives when nothing disturbs it.
std::string undisturbed(const std::string& config, const ToyRun& model) {
  ToyRun run;
  run.config() = config;
  run.replace(model.folder().string(), run.folder().string());
  expect_trained(run.train());
  return get(run.lora());
}

// Whatever carries its final name can be read.
void expect_whole_files(const fs::path& folder) {
  std::error_code none;
  for (fs::recursive_directory_iterator file(folder, none), end; !none && file != end; file.increment(none))
    if (file->path().extension() == ".safetensors") {
      EXPECT_EQ(error_of([&] { const Safetensors whole(file->path()); }), "") << file->path();
    }
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

struct Tally {
  int kills = 0, starts = 0;
};

// Kills the run again and again, at a random step, a random moment after it, or while it starts; then lets it finish.
Tally kill_and_resume(const ToyRun& run, int kills, std::mt19937_64& random) {
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  Tally tally;
  for (; tally.kills < kills; ++tally.starts) {
    HostProcess process(run.command({"--resume"}));
    if (below(6) == 0)
      sleep(0.001 * static_cast<double>(below(400)));
    else if (reaches(process, run, run.steps_done() + 1 + below(3)))
      sleep(0.001 * static_cast<double>(below(15)));
    if (!process.running()) {
      expect_trained(process.wait());
      break;
    }
    process.send(SIGKILL);
    const HostResult result = process.wait();
    if (result.signal != SIGKILL) {  // it ended just before
      expect_trained(result);
      break;
    }
    ++tally.kills;
    expect_whole_files(run.output());
  }
  expect_trained(run.train({"--resume"}));
  return tally;
}

// Twenty kills of runs with `memory`, against runs without it that nothing disturbs.
void expect_kills_change_nothing(const std::string& memory) {
  const uint64_t seed = seed_of_this_run();
  std::printf("LORA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const int wanted = sanitized ? 4 : 20;
  int kills = 0;
  for (int round = 0; kills < wanted && round < 10; ++round) {
    ToyRun run;
    run.set("steps", sanitized ? "8" : "24").set("save_every", std::to_string(1 + random() % 3));
    if (round % 2 == 0)
      run.set("gradient_accumulation", "2")
          .set("dropout", "0.1")
          .set("flip_x", "true")
          .set("caption_dropout_rate", "0.5")
          .replace("train:\n", "train:\n  timestep_type: mode\n  weighting_scheme: cosmap\n  noise_offset: 0.1\n");
    SCOPED_TRACE(run.config());
    const std::string expected = undisturbed(run.config(), run);
    run.replace("train:\n", memory + "train:\n");
    const Tally tally = kill_and_resume(run, wanted - kills, random);
    kills += tally.kills;
    EXPECT_TRUE(get(run.lora()) == expected) << "after " << tally.kills << " kills the LoRA differs";
    expect_whole_files(run.output());
    for (const auto& file : fs::recursive_directory_iterator(run.output()))
      EXPECT_FALSE(file.path().extension() == ".tmp") << file.path() << " was left behind";
  }
  EXPECT_EQ(kills, wanted);
}

TEST(Resume, TwentyKillsChangeNothing) { expect_kills_change_nothing(""); }

TEST(Resume, TwentyKillsChangeNothingWhereAllThatCanIsInHostMemory) {
  expect_kills_change_nothing("memory: {stream: 100%, offload: 35%, optimizer_states: host}\n");
}

// Two steps and two more give the file of four, whatever states the optimizer has, and wherever they are.
TEST(Resume, EveryOptimizerGoesOn) {
  std::vector<std::string> ids;
  for (const auto& plugin : built_plugins().plugins())
    for (const lh_optimizer* rule : plugin->optimizers()) ids.emplace_back(rule->id);
  ASSERT_GE(ids.size(), 16u);
  for (const std::string& id : ids) {
    SCOPED_TRACE(id);
    ToyRun run;
    run.set("optimizer", id).set("steps", "4");
    const std::string expected = undisturbed(run.config(), run);
    run.set("steps", "2");
    expect_trained(run.train({"--optimizer-states", "host"}));
    run.set("steps", "3");
    expect_trained(run.train({"--resume"}));
    run.set("steps", "4");
    expect_trained(run.train({"--resume", "--optimizer-states", "host"}));
    EXPECT_TRUE(get(run.lora()) == expected);
  }
}

// What is rounded at random is drawn by the number of the step.
TEST(Resume, NarrowStatesGoOn) {
  ToyRun run;
  run.replace("optimizer: adamw", "optimizer: adamw\n  optimizer_params: {state_dtype: bf16}").set("steps", "4");
  const std::string expected = undisturbed(run.config(), run);
  expect_trained(run.set("steps", "2").train());
  expect_trained(run.set("steps", "4").train({"--resume"}));
  EXPECT_TRUE(get(run.lora()) == expected);
  const Safetensors state(run.output() / "state" / "000000004.safetensors");
  for (const StoredTensor& t : state.tensors()) {
    if (t.name.starts_with("v/")) {
      EXPECT_EQ(t.desc.dtype, DType::bf16) << t.name;
    }
  }
}

// m of adamw is lion's; v is not, and is not read.
TEST(Resume, AnotherOptimizerSaysWhatItKeeps) {
  ToyRun run;
  run.set("steps", "2");
  expect_trained(run.train());
  run.set("steps", "4").set("optimizer", "lion");
  const HostResult lion = run.train({"--resume"});
  expect_trained(lion);
  EXPECT_THAT(lion.output, testing::HasSubstr("optimizer 'lion' takes over from 'adamw': kept m; begun anew: none"));
}

TEST(Resume, SignalsSaveAndLeaveWith75) {
  ToyRun run;
  run.set("steps", "8").set("save_every", "0");
  const std::string expected = undisturbed(run.config(), run);
  for (const int signal : {SIGTERM, SIGINT}) {
    HostProcess process(run.command({"--resume"}));
    ASSERT_TRUE(reaches(process, run, run.steps_done() + 1)) << process.output();
    process.send(signal);
    const HostResult result = process.wait();
    EXPECT_EQ(result.code, 75) << result.output;
    EXPECT_NE(result.output.find("continue with --resume"), std::string::npos) << result.output;
  }
  expect_trained(run.train({"--resume"}));
  EXPECT_TRUE(get(run.lora()) == expected);
}

TEST(Resume, MetricsAreThoseOfAnUndisturbedRun) {
  ToyRun whole, parts;
  for (ToyRun* run : {&whole, &parts}) run->set("steps", "6").set("save_every", "2");
  expect_trained(whole.train());
  HostProcess process(parts.command());
  ASSERT_TRUE(reaches(process, parts, 3));
  process.send(SIGKILL);
  process.wait();
  expect_trained(parts.train({"--resume"}));
  EXPECT_EQ(get(parts.output() / "metrics.csv"), get(whole.output() / "metrics.csv"));
}

TEST(Resume, SeedDecidesAndSamplesDoNot) {
  ToyRun plain, sampled, other;
  plain.set("steps", "3");
  sampled.set("steps", "3").set("prompts", "[a photo]").set("sample_every", "1");
  other.set("steps", "3").set("seed", "43");
  for (const ToyRun* run : {&plain, &sampled, &other}) expect_trained(run->train());
  EXPECT_TRUE(fs::exists(sampled.output() / "samples" / "000000001_0.png"));
  EXPECT_TRUE(get(plain.lora()) == get(sampled.lora()));
  EXPECT_FALSE(get(plain.lora()) == get(other.lora()));
}

TEST(Resume, AnEarlierRunIsNotOverwritten) {
  ToyRun run;
  run.set("steps", "1");
  expect_trained(run.train());
  const std::string before = get(run.lora());
  HostResult result = run.train();
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.output.find("holds an earlier run. Continue it with --resume"), std::string::npos) << result.output;
  run.set("linear", "3");
  result = run.train({"--resume"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.output.find("network.linear: the saved run has 2, this one 3"), std::string::npos) << result.output;
  EXPECT_TRUE(get(run.lora()) == before);
}

TEST(Resume, AnotherObjectiveIsRefused) {
  ToyRun run;
  run.set("steps", "1");
  expect_trained(run.train());
  struct Row {
    const char *keys, *error;
  };
  for (const Row& row :
       {Row{"  timestep_type: mode\n",
            "objective: the saved run has flow; timesteps sigmoid scale 1 shift 1; weight none; loss mse, "
            "this one flow; timesteps mode scale 1.29 shift 1; weight none; loss mse"},
        Row{"  weighting_scheme: cosmap\n", "this one flow; timesteps sigmoid scale 1 shift 1; weight cosmap"},
        Row{"  noise_offset: 0.1\n", "train.noise_offset: the saved run has 0, this one 0.1"}}) {
    const std::string before = run.config();
    run.set("steps", "2").replace("train:\n", std::string("train:\n") + row.keys);
    const HostResult result = run.train({"--resume"});
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.output.find(row.error), std::string::npos) << result.output;
    run.config() = before;
  }
}

// What a run was trained on stands in its file, in kohya's words, and changes what is trained.
TEST(Resume, ObjectivesAreTrainedAndWrittenDown) {
  ToyRun plain, weighted;
  plain.set("steps", "2");
  weighted.set("steps", "2")
      .replace("train:\n",
               "train:\n  timestep_type: logit_normal\n  logit_mean: 0.5\n  timestep_shift: 3\n"
               "  weighting_scheme: cosmap\n  noise_offset: 0.05\n");
  for (const ToyRun* run : {&plain, &weighted}) expect_trained(run->train());
  const auto metadata = Safetensors(weighted.lora()).metadata(), without = Safetensors(plain.lora()).metadata();
  EXPECT_EQ(metadata.at("ss_timestep_sampling"), "logit_normal");
  EXPECT_EQ(metadata.at("ss_logit_mean"), "0.5");
  EXPECT_EQ(metadata.at("ss_discrete_flow_shift"), "3");
  EXPECT_EQ(metadata.at("ss_weighting_scheme"), "cosmap");
  EXPECT_EQ(metadata.at("ss_noise_offset"), "0.05");
  EXPECT_EQ(without.at("ss_timestep_sampling"), "sigmoid");
  EXPECT_FALSE(without.contains("ss_weighting_scheme") || without.contains("ss_noise_offset"));
  EXPECT_NE(get(plain.output() / "metrics.csv"), get(weighted.output() / "metrics.csv"));
}

TEST(Resume, OneRunOwnsTheFolder) {
  ToyRun run;
  run.set("steps", "100000");
  HostProcess first(run.command()), second(run.command());
  while (first.running() && second.running()) sleep(0.005);
  HostProcess& loser = first.running() ? second : first;
  HostProcess& winner = first.running() ? first : second;
  const HostResult lost = loser.wait();
  EXPECT_EQ(lost.code, 4) << lost.output;
  EXPECT_NE(lost.output.find("another run is writing there (process " + std::to_string(winner.id()) + ")"),
            std::string::npos)
      << lost.output;
  ASSERT_TRUE(reaches(winner, run, 1)) << winner.output();
  winner.send(SIGTERM);
  EXPECT_EQ(winner.wait().code, 75);
}

TEST(Resume, DamagedCheckpointIsSetAside) {
  ToyRun run;
  run.set("steps", "6").set("save_every", "2");
  const std::string expected = undisturbed(run.config(), run);
  HostProcess process(run.command());
  ASSERT_TRUE(reaches(process, run, 5)) << process.output();
  process.send(SIGKILL);
  process.wait();
  const fs::path newest = run.output() / "state" / "000000004.safetensors";
  std::string bytes = get(newest);
  ASSERT_FALSE(bytes.empty());
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 1);
  put(newest, bytes);
  const HostResult result = run.train({"--resume"});
  expect_trained(result);
  EXPECT_NE(result.output.find("does not match its checksum"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("resuming after step 2"), std::string::npos) << result.output;
  EXPECT_TRUE(fs::exists(newest.string() + ".damaged"));
  EXPECT_TRUE(get(run.lora()) == expected);
}

TEST(Resume, LeftoversOfDeadProcessesGo) {
  ToyRun run;
  run.set("steps", "1");
  std::vector<fs::path> left;
  for (const char* folder : {"toy", "toy/state", "toy/samples", "cache/text", "cache/latents"})
    left.push_back(run.folder() / "runs" / folder / ".lora-host-1-0.tmp");
  for (const fs::path& file : left) put(file, "half a file");
  expect_trained(run.train());
  for (const fs::path& file : left) EXPECT_FALSE(fs::exists(file)) << file;
}

}  // namespace
}  // namespace lh::test::resume_test
