// Budgets as people write them, cards by name and by figures, and the table of `lora-host plan`.
#include <gmock/gmock.h>

#include <regex>

#include "config/load.h"
#include "core/bytes.h"
#include "run/card.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"
#include "train/memory_text.h"
#include "train/prepare.h"

namespace lh::test::memory_plan_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t gib = int64_t{1} << 30;

TEST(Sizes, AreReadAsPeopleWriteThem) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"12GiB", 12 * gib},   {"12 GiB", 12 * gib},       {"12", 12 * gib}, {"12G", 12 * gib},
      {"12gib", 12 * gib},   {"12GB", 12000000000},      {"0.5", gib / 2}, {"800MiB", 800 << 20},
      {"800 mb", 800000000}, {"1.5 TiB", 3 * 512 * gib}, {"7B", 7}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(size_of(text), bytes) << text;
  for (const char* text : {"", "GiB", "-1", "0", "12 apples", "12GiBs", "1e3", "nan", "1,5", "0.1B", "99999999999 TiB"})
    EXPECT_EQ(size_of(text), std::nullopt) << text;
  EXPECT_EQ(size_text(12 * gib), "12.0 GiB");
  EXPECT_EQ(size_text(800 << 20), "800.0 MiB");
  EXPECT_EQ(room_text(800 << 20), "800.0 MiB");
  for (const int64_t bytes : {(800 << 20) + 1, (801 << 20) - 1, 24523008}) EXPECT_GE(size_of(room_text(bytes)), bytes);
  EXPECT_EQ(room_text(12 * gib + 1), "12.1 GiB");
}

TEST(Cards, ByNameAndByFigures) {
  for (const char* name : {"rtx 4070", "RTX 4070", "RTX-4070", "NVIDIA GeForce RTX 4070", "4070"}) {
    SCOPED_TRACE(name);
    const Card card = card_of(name);
    EXPECT_EQ(card.memory, 12 * gib);
    EXPECT_EQ(card.rates.products, 58e12);
    EXPECT_EQ(card.rates.memory, 504e9);
  }
  const Card given = card_of("12 GiB, 50 TFLOP/s, 400 GB/s");
  EXPECT_EQ(given.memory, 12 * gib);
  EXPECT_EQ(given.rates.products, 50e12);
  EXPECT_EQ(given.rates.memory, 400e9);
  EXPECT_EQ(card_of("12 GiB").rates.products, 25e12) << "the slowest of that size";
  EXPECT_EQ(rate_of("--link", "12GB/s"), 12e9);
  for (const char* text : {"rtx 9999", "?", "", "50 TFLOP/s", "12 GiB, fast"})
    EXPECT_THAT(error_of([&] { card_of(text); }), AllOf(HasSubstr("--card"), HasSubstr("rtx 4090"))) << text;
  for (const char* text : {"0", "-3", "0 GB", "1e9", "1e400", "nan", "inf", "24,0", "24576", "-1 GiB, 50 TFLOP/s"})
    EXPECT_THAT(error_of([&] { card_of(text, LK_PRODUCTS_WIDE, "--vram"); }),
                AllOf(HasSubstr("--vram: expected the card's memory in GiB, more than 0 and at most 1024, such as 24"),
                      HasSubstr(fmt::format("found \"{}\"", text)), Not(HasSubstr("rtx"))))
        << text;
  EXPECT_EQ(card_of("24576 MiB").memory, 24 * gib);
  EXPECT_THAT(error_of([&] { rate_of("--link", "fast"); }), HasSubstr("--link: expected a rate"));
}

TEST(Cards, WithoutMatrixInstructionsForBf16) {
  EXPECT_FALSE(card_of("rtx 2080 ti").bf16);
  EXPECT_TRUE(card_of("rtx 3060").bf16);
  EXPECT_TRUE(card_of("6 GB").bf16) << "not known to be one";
  lk_device_info device{};
  std::ranges::copy(std::string_view("NVIDIA GeForce RTX 2080 Ti"), device.name);
  device.compute_capability = 75;
  EXPECT_THAT(slow_type(device, DType::bf16).value_or(""),
              AllOf(HasSubstr("on NVIDIA GeForce RTX 2080 Ti (compute capability 7.5)"), HasSubstr("--dtype fp16")));
  EXPECT_EQ(slow_type(device, DType::f16), std::nullopt);
  EXPECT_EQ(slow_type(device, DType::f32), std::nullopt);
  device.compute_capability = 80;
  EXPECT_EQ(slow_type(device, DType::bf16), std::nullopt);
  device.compute_capability = 0;
  EXPECT_EQ(slow_type(device, DType::bf16), std::nullopt) << "a processor";
}

TEST(Budgets, BesideOne) {
  EXPECT_THAT(budgets_around(12 * gib), ElementsAre(16 * gib, 12 * gib, 10 * gib));
  EXPECT_THAT(budgets_around(11 * gib), ElementsAre(12 * gib, 11 * gib, 10 * gib));
  EXPECT_THAT(budgets_around(gib), ElementsAre(4 * gib, gib));
}

TEST(PlanCommand, ShowsTheFastestPlanForEachBudget) {
  ToyRun run;
  std::vector<std::string> command = run.command();
  command[0] = "plan";
  command.insert(command.end(), {"--card", "rtx 4070", "--budget", "24,1MiB,12 GiB", "--link", "12GB/s"});
  const HostResult result = run_host(command);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("rtx 4070: products 58.0 TFLOP/s, memory 504 GB/s, link 12.0 GB/s"));
  EXPECT_TRUE(std::regex_search(result.output, std::regex(R"(24\.0 GiB +0\.0 MiB +0\.0 MiB +0 of \d+)")))
      << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex(R"(1\.0 MiB  does not fit: at least [\d.]+ MiB)")))
      << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex(R"(12\.0 GiB .* ms)"))) << result.output;
}

// A slower link never makes a step shorter, and a smaller budget never takes more memory.
TEST(PlanCommand, IsOfUseWithoutAModelFile) {
  const HostResult result =
      run_host({"plan", "--model", toy_denoiser().string(), "--resolution", "128", "--rank", "4", "--card", "8 GiB"});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("128 x 128 pixels"), HasSubstr("times are predicted")));
}

TEST(PlanCommand, RefusesWhatItDoesNotUnderstand) {
  ToyRun run;
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--card", "abacus"}, R"(--card: expected the card's memory in GiB, such as 24, its name, or figures)"},
      {{"--card", "8 GiB", "--budget", "12,some"},
       R"(--budget: expected sizes such as 24,16,12 \(GiB\) or 11\.5GiB, found some)"},
      {{"--card", "8 GiB", "--link", "quick"}, R"(--link: expected a rate such as 24GB/s, found quick)"}};
  for (const auto& [arguments, text] : wrong) {
    std::vector<std::string> command = run.command(arguments);
    command[0] = "plan";
    const HostResult result = run_host(command);
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_TRUE(std::regex_search(result.output, std::regex(text))) << result.output;
    EXPECT_THAT(result.output, testing::Not(HasSubstr("times are predicted")));  // nothing was begun
  }
}

// The figure behind `name` in the output of a command.
std::string figure(const std::string& output, const std::string& pattern) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(output, match, std::regex(pattern))) << output;
  return match.empty() ? "" : match[1].str();
}

// A row of the table of docs/memory.md; the link changes the row and no bit of the step.
TEST(BenchCommand, MeasuresUnderABudgetAndOnASlowerLink) {
  const std::vector<std::string> words{"bench",    "--model",  toy_denoiser().string(),
                                       "--device", "cpu",      "--resolution",
                                       "64",       "--rank",   "2",
                                       "--dtype",  "fp32",     "--repeat",
                                       "2",        "--stream", "100%",
                                       "--budget", "64MiB"};
  const auto bench = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return run_host(all);
  };
  const HostResult free = bench({}), slow = bench({"--link", "0.5GB/s"});
  for (const HostResult& result : {free, slow}) {
    ASSERT_EQ(result.code, 0) << result.output;
    EXPECT_TRUE(std::regex_search(
        result.output,
        std::regex(R"(row +\| 64\.0 MiB \| [\d.]+ GB/s \| [\d.]+ MiB \| [\d.]+ MiB \| [\d.]+ MiB \| )"
                   R"([\d.]+ ms \| [\d.]+ ms \| [+-][\d.]+% \| [\d.]+ MiB \| [\d.]+ MiB \| [+-]0\.0% \|)")))
        << result.output;
    EXPECT_THAT(result.output, HasSubstr("ms without the update, "));
  }
  const char* const loss = R"(loss ([\d.]+))";
  EXPECT_EQ(figure(slow.output, loss), figure(free.output, loss));
  EXPECT_THAT(slow.output, AllOf(HasSubstr("link 0.5 GB/s, as usual, not measured, the link as given"),
                                 HasSubstr("| 64.0 MiB | 0.5 GB/s |")));
  for (const std::string flag : {"--tune", "--times"}) {
    const HostResult of_one = bench({"--processes", "2", flag});
    EXPECT_EQ(of_one.code, 2) << of_one.output;
    EXPECT_THAT(of_one.output, HasSubstr("bench: " + flag + " shows a step of one process"));
  }
  const HostResult none = bench({"--link", "0.0001"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.output, HasSubstr("--link: expected 0.001 GB/s or more, found 0.0001"));
}

// What is made again at a time takes memory, too.
TEST(LeastMemory, LiesBetweenNothingAndEverythingMadeAgain) {
  ToyRun run;
  run.replace("device: " + tested_device(), "device: cpu").command();
  Prepared prepared(built_plugins(), load_config(run.folder() / "train.yaml"));
  MemoryPlanner& planner = prepared.memory_planner();
  const PlannedMemory least = planner.least();
  const int64_t bytes = least.memory.total();
  MemoryChoice other = least.choice;
  for (const double share : {0.0, 1.0}) {
    other.recompute = share;
    EXPECT_LT(bytes, planner.at(other).memory.total()) << share;
  }
  for (int part = 0; part < 128; ++part)
    for (const double offload : {0.0, 1.0}) {
      other.recompute = part / 128.0;
      other.offload = offload;
      EXPECT_LE(bytes, planner.at(other).memory.total()) << other.recompute << " " << offload;
    }
  EXPECT_TRUE(planner.best(bytes).has_value());
  EXPECT_FALSE(planner.best(bytes - 1).has_value());
}

// The figure of a refusal is one that a run may be given.
TEST(LeastMemory, IsWhatARefusalNames) {
  ToyRun run;
  run.replace("device: " + tested_device(), "device: cpu");
  const auto dry = [&](const std::string& budget) { return run.train({"--dry-run", "--budget", budget}); };
  const HostResult refused = dry("21MiB");
  EXPECT_EQ(refused.code, 4) << refused.output;
  const double least = std::stod(figure(refused.output, R"(and it takes ([\d.]+) MiB at least)"));
  EXPECT_EQ(dry(fmt::format("{:.1f}MiB", least)).code, 0);
  EXPECT_EQ(dry(fmt::format("{:.1f}MiB", least - 0.1)).code, 4);
}

// Samples are decoded in the memory of a run: a budget that is shown to be enough is enough for that, too.
TEST(MemoryTable, HasTheDecodingOfSamples) {
  int64_t least_in_tiles = 0;
  for (const int64_t tile : {128, 0}) {  // less than a step takes, and the whole picture: more than that
    SCOPED_TRACE(tile);
    ToyRun run;
    run.replace("device: " + tested_device(), "device: cpu");
    run.set("prompts", "[a photo]").set("sample_every", "1").set("width", "256").set("height", "256").command();
    Config config = load_config(run.folder() / "train.yaml");
    config.model.vae_tile = tile;
    Prepared prepared(built_plugins(), config);
    MemoryPlanner& planner = prepared.memory_planner();
    const int64_t least = planner.least().memory.total();
    EXPECT_FALSE(planner.best(least - 1).has_value());
    if (tile > 0)
      least_in_tiles = least;
    else
      EXPECT_GT(least, 2 * least_in_tiles);
    for (const int64_t budget : {least, least * 5 / 4, least * 2, 20 * least}) {
      SCOPED_TRACE(budget);
      const std::optional<PlannedMemory> best = planner.best(budget);
      ASSERT_TRUE(best.has_value());
      EXPECT_LE(best->memory.total(), budget);
      config.memory.budget = fmt::format("{}B", budget);
      const Prepared given(built_plugins(), config);
      EXPECT_LE(given.plan->memory.total(), budget);
      EXPECT_GE(best->memory.activations, given.samples->decoding().arena);
      if (budget == least) continue;  // where an estimate is exceeded by some bytes, another plan is made
      EXPECT_EQ(given.plan->memory.activations, best->memory.activations);
      EXPECT_EQ(given.plan->memory.weights, best->memory.weights);
    }
  }
}

TEST(DryRun, SaysByWhichRatesItPredicts) {
  ToyRun run;
  const HostResult result = run.train({"--dry-run"});
  EXPECT_EQ(result.code, 0) << result.output;
  const bool measured = tested_device() != "cpu";
  EXPECT_THAT(result.output,
              HasSubstr(std::string("predicted by rates of the device: products ") +
                        (measured ? "" : "0.1 TFLOP/s, memory 20 GB/s, link 10.0 GB/s, as usual, not measured")));
}

}  // namespace
}  // namespace lh::test::memory_plan_test
