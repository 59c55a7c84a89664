// lora_tests [--device cpu|cuda] [GoogleTest's flags]
//
// Runs the tests; those of kernels, ops, graphs and training on the device. A warning or error in the log that a test
// did not announce fails it.
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "cli/environment.h"
#include "support/device.h"
#include "support/log.h"

namespace lh::test {
namespace {

class Recorder : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::vector<std::string> lines;

 private:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    if (msg.level >= spdlog::level::warn) lines.emplace_back(msg.payload.data(), msg.payload.size());
  }
  void flush_() override {}
};

std::shared_ptr<Recorder> recorder() {
  static const auto instance = std::make_shared<Recorder>();
  return instance;
}

// The tests of this shard, as GoogleTest is told them. It deals tests out one by one, which would tear apart those of a
// suite that have the same parameter and share what the first of them makes, a training run say.
void choose_shard() {
  const char *const total = std::getenv("GTEST_TOTAL_SHARDS"), *const index = std::getenv("GTEST_SHARD_INDEX");
  if (total == nullptr || index == nullptr || GTEST_FLAG_GET(filter) != "*") return;
  const size_t shards = std::stoul(total), shard = std::stoul(index);
  std::map<std::string, size_t> groups;
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = suite.GetTestInfo(j)->name(), full = fmt::format("{}.{}", suite.name(), name);
      const size_t parameter = name.find('/');
      const std::string group = parameter == name.npos ? full : suite.name() + name.substr(parameter);
      if (groups.try_emplace(group, groups.size()).first->second % shards == shard) filter += ":" + full;
    }
  }
  GTEST_FLAG_SET(filter, filter);
  for (const char* const name : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) ::unsetenv(name);
}

class WarningsFail : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override {
    for (const std::string& line : take_warnings()) ADD_FAILURE() << "unexpected warning in the log: " << line;
  }
};

}  // namespace

static std::string& device() {
  static std::string name = "cpu";
  return name;
}

const std::string& tested_device() { return device(); }

std::vector<std::string> take_warnings() { return std::exchange(recorder()->lines, {}); }

}  // namespace lh::test

int main(int argc, char** argv) {
  lh::sleep_when_idle(argv);  // shards of the tests run beside each other
  testing::InitGoogleTest(&argc, argv);
  lh::test::choose_shard();
  if (argc == 3 && std::string_view(argv[1]) == "--device") {
    lh::test::device() = argv[2];
  } else if (argc != 1) {
    fmt::print(stderr, "usage: lora_tests [--device cpu|cuda] [--gtest_...]\n");
    return 2;
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lh::test::recorder()));
  testing::UnitTest::GetInstance()->listeners().Append(new lh::test::WarningsFail);
  return RUN_ALL_TESTS();
}
