// lora_tests [--device cpu|cuda] [GoogleTest's flags]
//
// Runs the tests; those of kernels, ops, graphs and training on the device. A warning or error in the log that a test
// did not announce fails it.
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>
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
