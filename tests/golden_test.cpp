// Truth from independent implementations (data/golden/README.md) for gradient clipping, which golden_runner
// does not run (optimizers: optimizers_test.cpp; samplers and schedules: samplers_test.cpp, objective_test.cpp). And
// the proof that golden_runner itself sees a wrong float.
#include "support/golden.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include "run/device.h"
#include "run/program.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/paths.h"

namespace lh::test::golden_test {
namespace {

namespace fs = std::filesystem;
using golden::Case;

const fs::path data = fs::path(test_data()) / "golden";

// Judges one tensor as the README says; fp32_error names it, or stands for all steps as "a.<k>".
void expect_golden(const Case& c, const std::string& name, std::span<const float> got) {
  const auto& errors = c.json.at("fp32_error");
  const std::string any_step = name.substr(0, name.rfind('.')) + ".<k>";
  const double own = errors.value(name, errors.value(any_step, 0.0));
  EXPECT_LE(golden::relative_error(got, c.expected(name).as<float>()), std::max(4 * own, 2e-6))
      << c.name << " " << name;
}

TEST(Clipping, ClipGradNorm) {
  const Case c(data / "optimizers" / "clip_grad_norm");
  Device device(tested_device());
  const auto limits = c.json.at("max_norms").get<std::vector<float>>();
  for (size_t i = 0; i < limits.size(); ++i) {
    std::map<std::string, HostTensor> gradients;
    std::map<std::string, DeviceMemory> memory;
    std::vector<lk_tensor> views;
    for (const auto& [key, spec] : c.json.at("inputs").items()) {
      const std::string name = key.substr(5);
      const HostTensor& t = gradients[name] = c.tensor(key, spec);
      memory.emplace(name, DeviceMemory(device, t.desc.bytes(), name));
      memory.at(name).upload(0, t.data.data(), t.desc.bytes());
      views.push_back(kernel_tensor(t.desc, memory.at(name).data()));
    }
    HostTensor norm(Desc{DType::f32, {1}});
    const DeviceMemory norm_memory(device, 4, "norm");
    const lk_clip_grad_norm_params params{.gradients = views.data(),
                                          .count = static_cast<int64_t>(views.size()),
                                          .max_norm = limits[i],
                                          .loss_scale = {},
                                          .norm = kernel_tensor(norm.desc, norm_memory.data())};
    device.check(lk_clip_grad_norm(device.context(), &params), "clip");
    norm_memory.download(0, norm.data.data(), 4);
    expect_golden(c, fmt::format("norm.{}", i), norm.as<float>());
    for (auto& [name, t] : gradients) {
      memory.at(name).download(0, t.data.data(), t.desc.bytes());
      expect_golden(c, fmt::format("{}.{}", name, i), t.as<float>());
    }
  }
}

struct Finished {
  int status;
  std::string output;
};
Finished run_golden(const fs::path& folder) {
  const std::string command = fmt::format("{}/bin/golden_runner '{}' 2>&1", binary_dir(), folder.string());
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  for (int ch = fgetc(pipe); ch != EOF; ch = fgetc(pipe)) output.push_back(static_cast<char>(ch));
  return {WEXITSTATUS(pclose(pipe)), output};
}

TEST(GoldenRunner, SeesOneChangedFloat) {
  const TempDir dir;
  fs::copy(data / "vae_flux_encode", dir / "case", fs::copy_options::recursive);
  const Finished as_it_is = run_golden(dir / "case");
  EXPECT_EQ(as_it_is.status, 0) << as_it_is.output;
  EXPECT_THAT(as_it_is.output, testing::HasSubstr(" 0 failed"));

  std::string bytes = get(dir / "case" / "expected.safetensors");
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - 4, 4);
  last = last * 1.01f + 0.01f;
  std::memcpy(bytes.data() + bytes.size() - 4, &last, 4);
  put(dir / "case" / "expected.safetensors", bytes);
  const Finished changed = run_golden(dir / "case");
  EXPECT_EQ(changed.status, 1) << changed.output;
  EXPECT_THAT(changed.output, testing::HasSubstr("1 failed"));
}

}  // namespace
}  // namespace lh::test::golden_test
