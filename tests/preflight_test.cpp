// The disk that a run says it needs is what it takes.
#include "cli/preflight.h"

#include <gtest/gtest.h>

#include "config/load.h"
#include "support/model_files.h"
#include "support/run_host.h"

namespace lh::test::preflight_test {
namespace {

namespace fs = std::filesystem;

// States of the later phases, the average of the weights and the values that adapters began with are in the file too.
TEST(Preflight, StateFilesAreAsLargeAsWasSaid) {
  constexpr int64_t margin = 64 << 10;
  for (const char* more :
       {"", "  ema_config: {use_ema: true}\n", "  phases:\n    - {until: 1}\n    - {optimizer: prodigy, lr: 1}\n"})
    for (const char* start : {"", "  network_kwargs: {init: olora}\n"}) {
      ToyRun run;
      run.set("steps", "2").set("optimizer", "sgd").set("linear", "8");
      run.replace("train:\n", std::string("train:\n") + more)
          .replace("  linear: 8\n", std::string("  linear: 8\n") + start);
      const HostResult result = run.train();
      ASSERT_EQ(result.code, 0) << result.output;
      Prepared prepared(built_plugins(), load_config(run.folder() / "train.yaml"));
      const DiskNeed need = disk_need(prepared);
      const auto size = static_cast<int64_t>(fs::file_size(run.output() / "state" / "000000002.safetensors"));
      EXPECT_LE(size, need.state) << run.config();
      EXPECT_GT(size, need.state - 2 * margin) << run.config();
    }
}

}  // namespace
}  // namespace lh::test::preflight_test
