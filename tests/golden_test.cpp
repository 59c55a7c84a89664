// Truth from independent implementations (data/golden/README.md) for what golden_runner does not run: samplers,
// schedules, optimizers, gradient clipping. And the proof that golden_runner itself sees a wrong float.
#include "support/golden.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cmath>

#include "run/update.h"
#include "support/device.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "train/objective.h"

namespace lh::test {
namespace {

namespace fs = std::filesystem;
using golden::Case;

const fs::path data = fs::path(LORA_TEST_DATA) / "golden";

// Judges one tensor as the README says; fp32_error names it, or stands for all steps as "a.<k>".
void expect_golden(const Case& c, const std::string& name, std::span<const float> got) {
  const auto& errors = c.json.at("fp32_error");
  const std::string any_step = name.substr(0, name.rfind('.')) + ".<k>";
  const double own = errors.value(name, errors.value(any_step, 0.0));
  EXPECT_LE(golden::relative_error(got, c.expected(name).as<float>()), std::max(4 * own, 2e-6))
      << c.name << " " << name;
}

HostTensor scalar(double value) { return floats({1}, {static_cast<float>(value)}); }

// The model of the sampler cases: v(x, sigma) = 0.3 x + 0.1 sin(2 x) + 0.2 sigma.
HostTensor velocity(const HostTensor& x, double sigma) {
  HostTensor v(x.desc);
  for (size_t i = 0; i < v.as<float>().size(); ++i) {
    const double value = x.as<float>()[i];
    v.as<float>()[i] = static_cast<float>(0.3 * value + 0.1 * std::sin(2 * value) + 0.2 * sigma);
  }
  return v;
}

class Samplers : public testing::TestWithParam<const char*> {};

TEST_P(Samplers, FollowTheTrajectory) {
  const Case c(data / "samplers" / GetParam());
  const auto& config = c.json.at("scheduler").at("config");
  SamplingSpec sampling;
  sampling.dynamic = config.value("use_dynamic_shifting", false);
  sampling.shift = config.at("shift");
  const int64_t steps = c.json.at("steps");
  const ResolutionShift law;
  if (sampling.dynamic) {
    ASSERT_EQ(law.mu(4096), c.json.at("scheduler").at("set_timesteps").at("mu").get<double>());
  }
  const std::vector<double> sigmas = flow_sigmas(sampling, {.resolution_shift = law}, steps, 4096);
  const std::vector<float> as_floats(sigmas.begin(), sigmas.end());
  expect_golden(c, "sigmas", as_floats);
  expect_golden(c, "times", std::span(as_floats).first(as_floats.size() - 1));

  HostTensor x = c.input("latents");
  const Offered<lh_sampler> sampler = built_plugins().sampler("flow_euler");
  Graph graph(DType::f32);
  lh_graph building{.host = sampler.host, .graph = &graph};
  const lh_desc desc = to_abi(x.desc);
  ASSERT_EQ(sampler.descriptor->build_stage(&building, 0, &desc), LH_OK) << building.error;
  Device device(tested_device());
  OwnedProgram stage(device, std::move(graph), {}, "test");
  for (int64_t i = 0;; ++i) {
    expect_golden(c, "latents." + std::to_string(i), golden::nhwc_to_nchw(x).as<float>());
    if (i == steps) break;
    const double sigma = sigmas[static_cast<size_t>(i)];
    stage->set_input("x", x);
    stage->set_input("model_out", velocity(x, sigma));
    stage->set_input("sigma", scalar(sigma));
    stage->set_input("sigma_next", scalar(sigmas[static_cast<size_t>(i + 1)]));
    stage->run();
    x = stage->output("x");
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Samplers, testing::Values("flow_euler_flux_dev", "flow_euler_flux_schnell"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Schedules, FlowSigmas) {
  const auto json = nlohmann::json::parse(get(data / "schedules" / "flow_shift.json"));
  int rows = 0;
  for (const auto& row : json.at("schedules")) {
    if (row.at("model") == "sd35") continue;  // its doubled shift is no schedule of this version
    SamplingSpec sampling;
    sampling.dynamic = row.contains("mu");
    const int64_t tokens = row.value("tokens", 1);
    const ResolutionShift law;
    if (sampling.dynamic) {
      EXPECT_NEAR(law.mu(tokens), row.at("mu").get<double>(), 1e-14);
    }
    const auto want = row.at("sigmas").get<std::vector<double>>();
    const auto got = flow_sigmas(sampling, {.resolution_shift = law}, row.at("steps"), tokens);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << row.at("model") << " " << i;
    ++rows;
  }
  EXPECT_EQ(rows, 24);
}

TEST(Schedules, TimestepLaws) {
  const auto json = nlohmann::json::parse(get(data / "schedules" / "timestep_laws.json"));
  const auto z = json.at("z").get<std::vector<double>>();
  int rows = 0;
  for (const auto& row : json.at("laws")) {
    const std::string law = row.at("law");
    if (law != "sigmoid" && law != "shifted_sigmoid" && law != "flux_shift") continue;
    for (size_t i = 0; i < z.size(); ++i) {
      double t = sigmoid_law(z[i], row.value("scale", 1.0));
      if (law == "shifted_sigmoid") t = shift_time(row.at("shift"), t);
      if (law == "flux_shift") t = shift_time_mu(row.at("mu"), t);
      EXPECT_NEAR(t, row.at("t").at(i).get<double>(), 1e-14) << law << " " << i;
    }
    ++rows;
  }
  EXPECT_EQ(rows, 6);
}

// A drawn time is the law applied to the same random number.
TEST(Schedules, DrawnTimesFollowTheLaw) {
  struct Row {
    const char* type;
    double (*law)(Random&);
  };
  const Row rows[] = {
      {"linear", [](Random& r) { return r.uniform(); }},
      {"sigmoid", [](Random& r) { return sigmoid_law(r.normal(), 0.7); }},
      {"shift", [](Random& r) { return shift_time(3, sigmoid_law(r.normal(), 0.7)); }},
      {"flux_shift", [](Random& r) { return shift_time_mu(ResolutionShift{}.mu(1024), sigmoid_law(r.normal(), 0.7)); }},
  };
  Recipe recipe;
  recipe.objective = "flow";
  for (const Row& row : rows) {
    TrainSection train;
    train.timestep_type = row.type;
    train.sigmoid_scale = 0.7;
    train.timestep_shift = 3;
    const TimestepLaw law(train, recipe);
    Random drawn(1, Purpose::timestep, 2, 3), same(1, Purpose::timestep, 2, 3);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(law.draw(drawn, 1024), row.law(same)) << row.type;
  }
}

std::map<std::string, std::vector<double>> options_of(const nlohmann::json& rule) {
  std::map<std::string, std::vector<double>> options;
  for (const auto& [key, value] : rule.items()) {
    if (key == "name" || key == "lr") continue;
    if (value.is_array())
      options[key] = value.get<std::vector<double>>();
    else
      options[key] = {value.is_boolean() ? static_cast<double>(value.get<bool>()) : value.get<double>()};
  }
  return options;
}

class Optimizers : public testing::TestWithParam<const char*> {};

TEST_P(Optimizers, FollowTheTrajectory) {
  const Case c(data / "optimizers" / GetParam());
  const auto& rule = c.json.at("optimizer");
  const Optimizer optimizer(built_plugins(), rule.at("name"), options_of(rule));
  Device device(tested_device());
  const DeviceMemory scalars(device, 512, "scalars");
  const int steps = c.json.at("steps");
  for (const auto& [name, spec] : c.json.at("weights").items()) {
    HostTensor p = c.tensor(name, spec);
    std::map<std::string, DeviceMemory> memory;
    for (const std::string& section : {std::string("p"), std::string("g")})
      memory.emplace(section, DeviceMemory(device, p.desc.bytes(), section));
    const HostTensor zeros(p.desc);
    for (const std::string& state : optimizer.states()) {
      memory.emplace(state, DeviceMemory(device, p.desc.bytes(), state));
      memory.at(state).upload(0, zeros.data.data(), p.desc.bytes());
    }
    memory.at("p").upload(0, p.data.data(), p.desc.bytes());
    std::map<std::string, void*> storage{{"lr", scalars.data()}, {"step", scalars.data() + 256}};
    for (const auto& [section, m] : memory) storage[section] = m.data();
    const UpdatePlan plan(optimizer, p.desc.shape);
    const DeviceMemory arena(device, plan.plan.bytes, "update");
    Update update(device, plan, storage, arena.data());
    for (int k = 0;; ++k) {
      memory.at("p").download(0, p.data.data(), p.desc.bytes());
      expect_golden(c, fmt::format("{}.{}", name, k), p.as<float>());
      if (k == steps) break;
      const std::string key = fmt::format("grad.{}.{}", k, name);
      const HostTensor gradient = c.tensor(key, c.json.at("inputs").at(key));
      memory.at("g").upload(0, gradient.data.data(), gradient.desc.bytes());
      const float count = static_cast<float>(k + 1);
      const float lr =
          c.json.contains("lr_per_step") ? c.json.at("lr_per_step").at(static_cast<size_t>(k)) : rule.at("lr");
      scalars.upload(0, &lr, 4);
      scalars.upload(256, &count, 4);
      update.run();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Optimizers,
                         testing::Values("adamw", "adamw_large_eps", "adamw_lr_schedule", "sgd_momentum",
                                         "sgd_nesterov"),
                         [](const auto& info) { return std::string(info.param); });

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
  const std::string command = fmt::format("{}/bin/golden_runner '{}' 2>&1", LORA_BINARY_DIR, folder.string());
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
}  // namespace lh::test
