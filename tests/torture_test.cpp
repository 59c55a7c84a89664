// A sample of scripts/torture.sh, and that it notices what is not healed.
#include "support/torture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "support/io_files.h"
#include "support/run_host.h"

namespace lh::test::torture_test {
namespace {

using Begin = TortureRun::Begin;

uint64_t seed_of_this_run() {
  const char* given = std::getenv("LORA_TEST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

// Indices of the writes of a run.
std::vector<int64_t> writes_of(Torture& torture, const TortureRun& run) {
  std::vector<int64_t> writes;
  for (const Fault& fault : torture.faults_of(run, 0))
    if (fault.action == fault_tear) writes.push_back(fault.nth);
  return writes;
}

class TortureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer has allocations of its own";
  }
  TempDir dir_;
};

TEST_F(TortureTest, AFewFaultsOfMany) {
  const uint64_t seed = seed_of_this_run();
  std::printf("LORA_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Torture torture(dir_ / "run", seed);
  const TortureRun runs[] = {{"adamw", "prodigy_plus_schedulefree", Begin::cached},
                             {"adamw8bit", "muon", Begin::resumed}};
  std::mt19937_64 random(seed);
  std::vector<std::pair<TortureRun, Fault>> tasks;
  for (const TortureRun& run : runs)
    for (const Fault& fault : torture.faults_of(run, 300)) tasks.emplace_back(run, fault);
  std::ranges::shuffle(tasks, random);
  constexpr size_t most = 60;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);  // a busy machine tries fewer
  for (size_t i = 0; i < std::min(most, tasks.size()) && std::chrono::steady_clock::now() < end; ++i)
    torture.meet(tasks[i].first, tasks[i].second);
  for (const TortureFailure& f : torture.tally().failures) ADD_FAILURE() << f.run << "; " << f.fault << ": " << f.what;
  EXPECT_GE(torture.tally().total(), 10);
}

// At moments that are spread over all that the runs do. LORA_TEST_KILLS: how many.
TEST_F(TortureTest, KillsWithWeightsInHostMemoryAndActivationsMadeAgain) {
  const char* given = std::getenv("LORA_TEST_KILLS");
  const size_t kills = given ? std::strtoull(given, nullptr, 10) : 4;
  Torture torture(dir_ / "run", 1);
  torture.resume_each = true;
  const TortureRun runs[] = {{"adamw", "lion", Begin::cached, true}, {"adamw", "lion", Begin::resumed, true}};
  for (size_t i = 0; i < kills; ++i) {
    const TortureRun& run = runs[i % 2];
    const std::vector<Fault> faults = torture.faults_of(run, 0);
    const auto calls = static_cast<size_t>(std::ranges::count(faults, fault_kill, &Fault::action));
    torture.meet(run, {.action = fault_kill, .nth = static_cast<int64_t>((2 * i + 1) * calls / (2 * kills))});
  }
  for (const TortureFailure& f : torture.tally().failures) ADD_FAILURE() << f.run << "; " << f.fault << ": " << f.what;
  EXPECT_EQ(torture.tally().total(), static_cast<int64_t>(kills));
  EXPECT_EQ(torture.tally().resumed, static_cast<int64_t>(kills));
}

// Libraries set themselves up when they are first called: OpenSSL crashed in the digest after one whose memory was
// short.
TEST_F(TortureTest, MemoryIsShortAsLibrariesBegin) {
  Torture torture(dir_ / "run", 1);
  for (int64_t nth = 0; nth < 2000; nth += 31)
    torture.meet({"adamw", "lion", Begin::cached}, {.action = fault_alloc, .nth = nth});
  for (const TortureFailure& f : torture.tally().failures) ADD_FAILURE() << f.run << "; " << f.fault << ": " << f.what;
}

// A write that claims to be done, a crash, a hang: each is reported.
TEST_F(TortureTest, NoticesWhatIsNotHealed) {
  Torture torture(dir_ / "run", 1);
  const TortureRun run{"adamw", "lion", Begin::cached};
  const std::vector<int64_t> writes = writes_of(torture, run);
  ASSERT_GT(writes.size(), 10u);
  const auto noticed = [&](const std::string& text) {
    return std::ranges::any_of(torture.tally().failures,
                               [&](const TortureFailure& f) { return f.what.find(text) != std::string::npos; });
  };
  for (size_t i = 0; i < writes.size() && !noticed("metrics.csv differs"); ++i)
    torture.meet(run, {.action = fault_lie, .nth = writes[i]});
  EXPECT_TRUE(noticed("metrics.csv differs"));
  torture.meet(run, {.action = fault_crash, .nth = writes[5]});
  EXPECT_TRUE(noticed("crashed with signal 11"));
  torture.time_limit = 1;
  torture.meet(run, {.action = fault_hang, .nth = writes[5]});
  EXPECT_TRUE(noticed("hung for 1 seconds"));
  // And a run without a fault is none.
  const size_t before = torture.tally().failures.size();
  torture.time_limit = 60;
  torture.meet(run, {});
  EXPECT_EQ(torture.tally().failures.size(), before);
}

TEST_F(TortureTest, TreesAreComparedByteByByte) {
  const auto tree = [&](const std::string& name) { return tree_of(dir_ / name); };
  put(dir_ / "a/file", "same");
  put(dir_ / "b/file", "same");
  EXPECT_EQ(difference(tree("a"), tree("b")), "");
  put(dir_ / "b/.lock", "123");
  EXPECT_EQ(difference(tree("b"), tree("a")), "");
  put(dir_ / "b/file", "samf");
  EXPECT_NE(difference(tree("b"), tree("a")).find("file differs"), std::string::npos);
  put(dir_ / "b/more/file", "x");
  EXPECT_NE(difference(tree("b"), tree("a")).find("more/file is left over"), std::string::npos);
  EXPECT_NE(difference(tree("a"), tree("b")).find("more/ is missing"), std::string::npos);
}

}  // namespace
}  // namespace lh::test::torture_test
