// A GPU that cannot be used: every reason has its own exit status and a text that says what to do. What this machine
// does not have (an old driver, a cuDNN that is refused) is put in its place by a library that lora-host is made to
// load first (tests/shims).
#include <gmock/gmock.h>

#include <regex>

#include "lora_kernels.h"
#include "support/device.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::device_error_test {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Refusal {
  const char* name;
  const char* shim;
  Environment environment;
  int code;
  const char* text;  // regular expression
};

const Refusal refusals[] = {
    {"no_driver",
     "driver",
     {{"LORA_TEST_DRIVER", "0"}, {"LORA_TEST_DEVICES", "35"}},
     10,
     R"(there is no NVIDIA driver on this machine \(libcuda\.so\.1\)\. Install one for CUDA 1\d\.\d+ or newer)"},
    {"old_driver",
     "driver",
     {{"LORA_TEST_DRIVER", "12040"}, {"LORA_TEST_DEVICES", "35"}},
     11,
     R"(the NVIDIA driver is too old: it supports CUDA 12\.4, expected CUDA 1\d\.\d+ or newer\. Update the driver)"},
    {"no_device",
     "driver",
     {{"LORA_TEST_DRIVER", "13000"}, {"LORA_TEST_DEVICES", "100"}},
     4,
     R"(the NVIDIA driver \(CUDA 13\.0\) sees no GPU\. Check nvidia-smi and CUDA_VISIBLE_DEVICES)"},
    {"silent_driver",
     "driver",
     {{"LORA_TEST_DRIVER", "13000"}, {"LORA_TEST_DEVICES", "999"}},
     4,
     R"(the NVIDIA driver does not answer: unknown error)"},
    {"cudnn_first_broken",
     "cudnn",
     {{"LORA_TEST_CUDNN", "91300"}},
     12,
     R"(cuDNN 9\.13\.0 cannot be used: .*CUDA graph, expected 9\.15\.1 or newer)"},
    {"cudnn_last_broken",
     "cudnn",
     {{"LORA_TEST_CUDNN", "91500"}},
     12,
     R"(cuDNN 9\.15\.0 cannot be used: .*, expected 9\.15\.1 or newer \(.*\)\. Install it \(package cudnn9-cuda-1\d)"},
    {"cudnn_too_old",
     "cudnn",
     {{"LORA_TEST_CUDNN", "90701"}},
     12,
     R"(cuDNN 9\.7\.1 is too old, expected 9\.15\.1 or newer)"},
    {"cudnn_8", "cudnn", {{"LORA_TEST_CUDNN", "8907"}}, 12, R"(cuDNN 8\.9\.7 is too old)"},
    {"cudnn_of_another_major",
     "cudnn",
     {{"LORA_TEST_CUDNN", "100000"}},
     12,
     R"(cuDNN 10\.0\.0 was found, but this build is for cuDNN 9, expected 9\.15\.1 or newer)"},
};

std::ostream& operator<<(std::ostream& out, const Refusal& r) { return out << r.name; }

HostOptions preload(const std::filesystem::path& library, Environment environment) {
  environment.emplace_back("LD_PRELOAD", library.string());
  // A sanitized program wants its runtime to be the first library.
  environment.emplace_back("ASAN_OPTIONS", "verify_asan_link_order=0");
  return {.environment = std::move(environment)};
}

HostOptions preload_shim(const std::string& name, Environment environment) {
  return preload(std::string(binary_dir()) + "/lib/lora-host-test/shims/" + name + ".so", std::move(environment));
}

// The toy run on a GPU; with `by_default` the configuration names no device.
HostResult train_on_gpu(const HostOptions& options, bool by_default = false) {
  ToyRun run;
  run.set("steps", "1").replace(fmt::format("device: {}\n", tested_device()), by_default ? "" : "device: cuda\n");
  HostResult result = run_host(run.command(), options);
  EXPECT_FALSE(std::filesystem::exists(run.lora()));
  return result;
}

void expect_refusal(const HostResult& result, int code, const std::string& text) {
  EXPECT_EQ(result.code, code) << "signal " << result.signal << "\n" << result.output;
  EXPECT_TRUE(std::regex_search(result.output, std::regex("lora-host: error: .*" + text))) << text << "\n"
                                                                                           << result.output;
}

lk_status open_gpu() {
  const lk_context_params params{.backend = LK_CUDA, .device = 0, .threads = 0, .fast = 0, .tuning_cache = nullptr};
  lk_context* context = nullptr;
  const lk_status status = lk_context_create(&params, &context);
  lk_context_destroy(context);
  return status;
}

class DeviceError : public ::testing::TestWithParam<Refusal> {
 protected:
  void SetUp() override {
    if (lk_backend_available(LK_CUDA) == 0) GTEST_SKIP() << "there is no CUDA backend";
  }
};

TEST_P(DeviceError, HasItsCodeAndText) {
  const Refusal& r = GetParam();
  const HostResult result = train_on_gpu(preload_shim(r.shim, r.environment));
  expect_refusal(result, r.code, R"(device: cuda cannot be used: )" + std::string(r.text));
  EXPECT_THAT(result.output, ::testing::HasSubstr("Or use `device: cpu`, which needs no GPU"));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceError, ::testing::ValuesIn(refusals),
                         [](const auto& info) { return std::string(info.param.name); });

// The module of the CUDA backend is not there, or not what this build made: `file` lies in its place beside a copy of
// the library of kernels, which lora-host is made to load first.
struct Misplaced {
  const char* name;
  const char* file;  // below the build folder; "" for none
  int code;
  const char* text;  // regular expression
};

const Misplaced misplaced[] = {
    {"nothing", "", 4,
     R"(device: cuda was asked for \(it is the default\), but this lora-host has no CUDA backend\. Use `device: cpu`)"},
    {"no_library", "CMakeCache.txt", 12,
     R"(device: cuda cannot be used: the cuda backend cannot be loaded: .*/lora-kernels/cuda\.so: .*(ELF|file too short))"},
    {"another_library", "lib/lora-host/optim.so", 12,
     R"(lora-kernels/cuda\.so: expected a backend of this build \([0-9a-f]{16}\), found none\. Install both from the same build)"},
    {"another_build", "lib/lora-host-test/shims/other_backend.so", 12,
     R"(lora-kernels/cuda\.so: expected a backend of this build \([0-9a-f]{16}\), found another\. Install both)"},
};

std::ostream& operator<<(std::ostream& out, const Misplaced& m) { return out << m.name; }

class MisplacedModule : public ::testing::TestWithParam<Misplaced> {};

TEST_P(MisplacedModule, IsRefused) {
  const Misplaced& m = GetParam();
  const TempDir folder;
  const std::filesystem::path built(binary_dir()), library = folder / "liblora_kernels.so.0";
  std::filesystem::copy_file(built / "lib/liblora_kernels.so.0", library);
  std::filesystem::create_directory(folder / "lora-kernels");
  if (*m.file != '\0') std::filesystem::copy_file(built / m.file, folder / "lora-kernels/cuda.so");
  const HostResult result = train_on_gpu(preload(library, {}));
  expect_refusal(result, m.code, m.text);
}

INSTANTIATE_TEST_SUITE_P(All, MisplacedModule, ::testing::ValuesIn(misplaced),
                         [](const auto& info) { return std::string(info.param.name); });

// Memory is compared with the plan before anything is taken.
TEST(DeviceMemoryError, IsForeseenByThePlan) {
  if (lk_backend_available(LK_CUDA) == 0 || open_gpu() != LK_OK) GTEST_SKIP() << "there is no usable GPU";
  expect_refusal(
      train_on_gpu(preload_shim("memory", {{"LORA_TEST_FREE_MIB", "260"}})), 4,
      R"(the run does not fit: 4\.0 MiB of memory may be used, and it takes[\s\S]*datasets\.resolution, half of what it is)");
  // Less than what the libraries load: nothing is left, not less than nothing.
  expect_refusal(train_on_gpu(preload_shim("memory", {{"LORA_TEST_FREE_MIB", "100"}})), 4,
                 R"(the run does not fit: 0\.0 MiB of memory may be used)");
}

// What this machine says when no GPU is shown to lora-host: its build or its driver comes first.
TEST(NoGpu, IsRefusedWithTheReason) {
  const HostOptions hidden{.environment = {{"CUDA_VISIBLE_DEVICES", ""}}};
  for (const bool by_default : {false, true}) {
    SCOPED_TRACE(by_default);
    const HostResult result = train_on_gpu(hidden, by_default);
    EXPECT_THAT(result.output, ::testing::HasSubstr("`device: cpu`"));
    if (lk_backend_available(LK_CUDA) == 0) {
      expect_refusal(result, 4,
                     R"(device: cuda was asked for \(it is the default\), but this lora-host has no CUDA backend)");
      continue;
    }
    switch (open_gpu()) {
      case LK_E_NO_DRIVER: expect_refusal(result, 10, "there is no NVIDIA driver"); break;
      case LK_E_OLD_DRIVER: expect_refusal(result, 11, "the NVIDIA driver is too old"); break;
      case LK_E_LIBRARY: expect_refusal(result, 12, "cuDNN"); break;
      default: expect_refusal(result, 4, "sees no GPU");
    }
  }
}

}  // namespace
}  // namespace lh::test::device_error_test
