// Datasets with batch sizes of their own: how batches count, what they take, and that such runs are resumed.
#include <gmock/gmock.h>

#include <cmath>
#include <regex>

#include "data/batches.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "train/train_plan.h"

namespace lh::test::batch_sizes_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

void copy_photos(const fs::path& to, std::initializer_list<const char*> names) {
  fs::create_directories(to);
  for (const std::string name : names)
    for (const char* ending : {".jpg", ".txt"})
      fs::copy_file(fs::path(source_dir()) / "examples/demo/photos" / (name + ending), to / (name + ending));
}

// Five photos small in batches of two, and two of them large, one by one.
constexpr const char* two_datasets = R"(    batch_size: 2
  - folder_path: FOLDER/large
    resolution: 96
    caption_dropout_rate: 0
)";

struct TwoSizes : ToyRun {
  explicit TwoSizes(std::initializer_list<const char*> large = {"cat_01", "cat_02"}) {
    copy_photos(folder() / "large", large);
    replace("    flip_x: false\n", "    flip_x: false\n" + replaced(two_datasets, "FOLDER", folder().string()));
  }
};

std::string figure(const std::string& text, const char* pattern) {
  std::smatch found;
  const bool there = std::regex_search(text, found, std::regex(pattern));
  EXPECT_TRUE(there) << pattern << "\n" << text;
  return there ? found[1].str() : "0";
}

// The losses of a run's steps, as metrics.csv has them.
std::vector<double> losses(const ToyRun& run) {
  std::vector<double> all;
  std::istringstream lines(get(run.output() / "metrics.csv"));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) all.push_back(std::stod(line.substr(line.find(',') + 1)));
  return all;
}

TEST(BatchSizes, OfDatasetsAreTrainedAndResumed) {
  TwoSizes run;
  const std::string plan = expect_trained(run.train({"--dry-run"})).output;
  EXPECT_THAT(plan,
              AllOf(HasSubstr("bucket   64 x 64: 5 per epoch, in batches of 2"),
                    HasSubstr("bucket   96 x 96: 2 per epoch, in batches of 1"),
                    HasSubstr("epochs     5 batches each; 6 steps are 1.20"), HasSubstr("largest    of the batches")));
  const HostResult whole = expect_trained(run_host(run.command(), {.environment = {{"LORA_VERBOSE", "memory"}}}));
  EXPECT_EQ(figure(whole.output, R"(planned (\d+) MiB)"), figure(whole.output, R"(peak (\d+) MiB\n)"));
  const std::string lora = get(run.lora());
  EXPECT_THAT(lora, AllOf(HasSubstr("ss_datasets"), Not(HasSubstr("ss_batch_size_per_device"))));
  fs::remove_all(run.output());
  // Step 4 is the last one with a state.
  run.set("steps", "4");
  expect_trained(run.train());
  run.set("steps", "6");
  expect_trained(run.train({"--resume"}));
  EXPECT_EQ(get(run.lora()), lora);

  run.set("steps", "8").replace("batch_size: 2", "batch_size: 3");
  EXPECT_THAT(run.train({"--resume"}).output,
              HasSubstr("train.batch_size: the saved run has 1 and 2, this one 1 and 3"));
}

// Which images are in batches of which size is part of a run; by which key a size was said is not.
TEST(BatchSizes, OfAResumedRun) {
  TwoSizes run;
  run.set("steps", "2");
  expect_trained(run.train());
  run.set("steps", "4");
  run.replace("    batch_size: 2\n", "").replace("resolution: 96\n", "resolution: 96\n    batch_size: 2\n");
  EXPECT_THAT(run.train({"--resume"}).output,
              HasSubstr("with other settings (size, batch size, repeats, masks, further images)"));
  ToyRun one;
  one.set("steps", "2").replace("train:\n  batch_size: 1", "train:\n  batch_size: 2");
  expect_trained(one.train());
  one.set("steps", "4").replace("train:\n  batch_size: 2", "train:\n  batch_size: 1");
  one.replace("resolution: 64\n", "resolution: 64\n    batch_size: 2\n");
  expect_trained(one.train({"--resume"}));
}

// A batch counts as one, however many images it has: a step is the mean of its batches, and each the mean of its
// images.
TEST(BatchSizes, BatchesOfAStepCountAlike) {
  Dataset two;
  for (const int64_t size : {2, 2, 1}) two.samples.emplace_back().batch_size = size;
  two.samples[2].bucket = {96, 96};
  int64_t seed = 1;  // of which the batches come in one order, whether a step has one of them or two
  const auto first = [&](int64_t group) {
    return BatchOrder(two, static_cast<uint64_t>(seed), group).at(0).samples.size();
  };
  while (first(1) != first(2)) ++seed;

  TwoSizes run({"cat_01"});
  copy_photos(run.folder() / "small", {"cat_03", "cat_04"});
  run.replace(std::string(source_dir()) + "/examples/demo/photos", (run.folder() / "small").string());
  run.set("seed", std::to_string(seed)).set("lr", "1e-30").set("steps", "2");
  expect_trained(run.train());
  const std::vector<double> alone = losses(run);
  fs::remove_all(run.output());
  run.set("gradient_accumulation", "2").set("steps", "1");
  expect_trained(run.train());
  const std::vector<double> together = losses(run);
  ASSERT_EQ(alone.size(), 2u);
  ASSERT_EQ(together.size(), 1u);
  EXPECT_GT(std::abs(alone[0] - alone[1]), 1e-2) << "nothing to tell apart";
  // All are float32, and written so that they are read back as they were; the sum is rounded twice.
  const double mean = (alone[0] + alone[1]) / 2;
  EXPECT_NEAR(together[0], mean, mean * std::ldexp(1, -23));
}

// The arena is that of the largest step, and not of the most images at the largest size.
TEST(BatchSizes, MemoryIsThatOfTheLargestStep) {
  ModelConfig config;
  config.name_or_path = toy_folder() / "flux_toy.safetensors";
  const Model model(built_plugins(), config, "flux");
  Device device("cpu");
  NetworkConfig network;
  network.linear = 4;
  const AdapterSelection selection(network, model.recipe(), 3);
  const auto activations = [&](const std::set<StepShape>& shapes) {
    return TrainPlan(device, model, built_plugins(), {}, selection, shapes, {}).memory.activations;
  };
  const Sizes text{{"text_length", 32}};
  const StepShape small{{64, 64}, text, 4}, large{{96, 96}, text, 1}, most{{96, 96}, text, 4};
  const int64_t of_small = activations({small}), of_large = activations({large});
  EXPECT_EQ(activations({small, large}), std::max(of_small, of_large));
  EXPECT_LT(activations({small, large}), activations({most}));
}

TEST(BatchSizes, WrongOnesAreRefused) {
  for (const auto& [value, what] : std::vector<std::pair<const char*, const char*>>{
           {"0", "datasets[0].batch_size: "},
           {"-2", "datasets[0].batch_size: "},
           {"two", "datasets[0].batch_size: "},
           {"5000", "datasets[0].batch_size: "},
           {"[4, 1, 1]",
            "datasets[0].batch_size: expected one number, or one for each of the 2 resolutions, found 3"}}) {
    SCOPED_TRACE(value);
    ToyRun run;
    run.replace("resolution: 64\n", "resolution: [64, 96]\n    batch_size: " + std::string(value) + "\n");
    const HostResult refused = run.train();
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.output, AllOf(HasSubstr("train.yaml:16:"), HasSubstr(what)));
  }
}

// A list has a number for each resolution.
TEST(BatchSizes, OfResolutions) {
  ToyRun run;
  run.replace("resolution: 64\n", "resolution: [64, 96]\n    batch_size: [4, 1]\n");
  EXPECT_THAT(
      expect_trained(run.train({"--dry-run"})).output,
      AllOf(HasSubstr("bucket   64 x 64: 5 per epoch, in batches of 4"),
            HasSubstr("bucket   96 x 96: 5 per epoch, in batches of 1"), HasSubstr("epochs     7 batches each")));
  run.replace("resolution: [64, 96]", "resolution: [64, 96, 112]");
  EXPECT_THAT(run.train().output, HasSubstr("one for each of the 3 resolutions, found 2"));
}

// ai-toolkit's, within its wrapper.
TEST(BatchSizes, OfAJobOfAiToolkit) {
  ToyRun run;
  run.replace("\ntrain:\n", "\ntrain:\n  noise_scheduler: flowmatch\n");
  run.replace("resolution: 64\n", "resolution: 64\n    batch_size: 2\n  - folder_path: " + std::string(source_dir()) +
                                      "/examples/demo/photos\n    resolution: 96\n    batch_size: null\n");
  std::istringstream lines(run.config());
  std::string wrapped = "job: extension\nconfig:\n", rest;
  for (std::string line; std::getline(lines, line);)
    line.starts_with("name:") ? wrapped += "  " + line + "\n" : rest += "      " + line + "\n";
  run.config() = wrapped + "  process:\n    - type: sd_trainer\n" + rest;
  EXPECT_THAT(expect_trained(run.train({"--dry-run"})).output,
              AllOf(HasSubstr("bucket   64 x 64: 5 per epoch, in batches of 2"),
                    HasSubstr("bucket   96 x 96: 5 per epoch, in batches of 1")));
}

}  // namespace
}  // namespace lh::test::batch_sizes_test
