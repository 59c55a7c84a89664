// The average of the trained weights: against implementations of peers, inside a step, in files, samples and states.
#include "run/ema.h"

#include <gmock/gmock.h>

#include "run/weights.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/image_files.h"
#include "support/log.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"
#include "train/step_runner.h"

namespace lh::test::ema_test {
namespace {

namespace fs = std::filesystem;
using golden::Case;
using ::testing::HasSubstr;

const fs::path cases = fs::path(test_data()) / "golden" / "optimizers";

// An average over memory of its own: all tensors of a case behind each other, 64 elements apart, as adapters lie.
class Averaged {
 public:
  Averaged(Device& device, const EmaConfig& config, int64_t elements)
      : ema_(config, elements),
        memory_(device, 2 * elements * 4 + 256, "weights, average, count"),
        arena_(device, std::max<int64_t>(1, ema_.plan().plan.bytes), "arena"),
        elements_(elements) {
    ema_.bind(device,
              {memory_.data(), memory_.data() + elements * 4, memory_.data() + 2 * elements * 4 + 4, arena_.data()});
  }
  Ema& operator*() { return ema_; }
  Ema* operator->() { return &ema_; }
  void set_weights(const HostTensor& w) { memory_.upload(0, w.data.data(), w.desc.bytes()); }
  void set_average(const HostTensor& w) { memory_.upload(elements_ * 4, w.data.data(), w.desc.bytes()); }
  HostTensor average() const {
    HostTensor out(Desc{DType::f32, {elements_}});
    memory_.download(elements_ * 4, out.data.data(), out.desc.bytes());
    return out;
  }
  void update() {
    const auto count = static_cast<float>(++updates_);
    memory_.upload(2 * elements_ * 4 + 4, &count, 4);
    ema_.run();
  }

 private:
  Ema ema_;
  DeviceMemory memory_, arena_;
  int64_t elements_, updates_ = 0;
};

EmaConfig config_of(const nlohmann::json& ema) {
  EmaConfig config{.use_ema = true, .ema_decay = ema.at("decay")};
  if (ema.at("name") == "ema_aitoolkit") {
    config.warmup = ema.at("use_num_updates") ? "num_updates" : "none";
    return config;
  }
  config.warmup = ema.at("use_ema_warmup") ? "power" : "diffusers";
  config.min_decay = ema.at("min_decay");
  config.update_after_step = ema.at("update_after_step");
  if (ema.contains("inv_gamma")) config.inv_gamma = ema.at("inv_gamma");
  if (ema.contains("power")) config.power = ema.at("power");
  return config;
}

class EmaTrajectory : public testing::TestWithParam<const char*> {};

TEST_P(EmaTrajectory, IsFollowed) {
  const Case c(cases / GetParam());
  const int steps = c.json.at("steps");
  const EmaConfig config = config_of(c.json.at("ema"));
  Device device(tested_device());
  std::map<std::string, int64_t> offsets;
  int64_t elements = 0;
  for (const auto& [name, spec] : c.json.at("weights").items()) {
    offsets[name] = elements;
    elements += (c.tensor(name, spec).desc.shape.numel() + 63) / 64 * 64;
  }
  const auto weights = [&](const std::string& prefix, const nlohmann::json& specs) {
    HostTensor all(Desc{DType::f32, {elements}});
    for (const auto& [name, at] : offsets)
      std::ranges::copy(c.tensor(prefix + name, specs.at(prefix + name)).as<float>(),
                        all.as<float>().begin() + static_cast<std::ptrdiff_t>(at));
    return all;
  };
  const auto limit = [&](const std::string& name) {
    return std::max(4 * c.json.at("fp32_error").at(name).get<double>(), 2e-6);
  };
  Averaged ema(device, config, elements), law(device, config, 64);
  ema.set_weights(weights("", c.json.at("weights")));
  ema->start();
  std::vector<float> decays;
  for (int k = 0; k <= steps; ++k) {
    if (k > 0) {
      ema.set_weights(weights(fmt::format("weight.{}.", k), c.json.at("inputs")));
      ema.update();
      // An average of ones over weights of zeros shows the decay itself.
      law.set_average(HostTensor::from_floats({64}, std::vector<float>(64, 1)));
      law.set_weights(HostTensor(Desc{DType::f32, {64}}));
      law.update();
      decays.push_back(law.average().as<float>()[0]);
    }
    const HostTensor got = ema.average();
    for (const auto& [name, at] : offsets) {
      const HostTensor want = c.expected(fmt::format("ema.{}.{}", name, k));
      EXPECT_LE(golden::relative_error(got.as<float>().subspan(static_cast<size_t>(at), want.as<float>().size()),
                                       want.as<float>()),
                limit(fmt::format("ema.{}.<k>", name)))
          << name << " after " << k;
    }
  }
  EXPECT_LE(golden::relative_error(decays, c.expected("decay").as<float>()), limit("decay"));
}

INSTANTIATE_TEST_SUITE_P(Golden, EmaTrajectory,
                         testing::Values("ema_aitoolkit", "ema_aitoolkit_num_updates", "ema_diffusers",
                                         "ema_diffusers_warmup"),
                         [](const auto& info) { return std::string(info.param); });

// Decays near 1 and many steps, where 1 - decay in float32 would keep two digits: after `updates` from 0 towards 1 the
// average is 1 - decay^updates.
TEST(Ema, KeepsTheDigitsOfADecayNearOne) {
  Device device(tested_device());
  Averaged ema(device, {.use_ema = true, .ema_decay = 0.999999}, 64);
  ema.set_average(HostTensor(Desc{DType::f32, {64}}));
  ema.set_weights(HostTensor::from_floats({64}, std::vector<float>(64, 1)));
  constexpr int updates = 1000;
  for (int i = 0; i < updates; ++i) ema.update();
  const double want = 1 - std::pow(0.999999, updates);
  // Each update rounds to half an ulp of the average, at most 2^-34 below 2^-9.
  EXPECT_NEAR(ema.average().as<float>()[0], want, updates * std::pow(2.0, -34) + 1e-6 * want);
}

TEST(Ema, IsOneLaunchWhateverTheLaw) {
  for (const char* warmup : {"none", "num_updates", "diffusers", "power"}) {
    const Ema ema({.use_ema = true, .warmup = warmup}, 1 << 20);
    EXPECT_EQ(ema.plan().graph.nodes.size(), 1u) << warmup;
    EXPECT_EQ(ema.plan().plan.bytes, 0) << warmup;
  }
}

TEST(Ema, KeysThatExcludeEachOtherAreNamed) {
  struct Row {
    EmaConfig config;
    const char* error;
  };
  for (const Row& row :
       {Row{{.ema_decay = 0.5, .warmup = "diffusers", .min_decay = 0.6},
            "train.ema_config.min_decay: 0.6 is above train.ema_config.ema_decay: 0.5"},
        Row{{.min_decay = 0.1},
            "train.ema_config.min_decay: belongs to warmup num_updates, diffusers and power, but the warmup is none; "
            "remove it"},
        Row{{.warmup = "diffusers", .power = 0.7},
            "train.ema_config.power: belongs to warmup power, but the warmup is diffusers; remove it"}})
    EXPECT_EQ(error_of([&] { Ema(row.config, 64); }), row.error);
}

// Steps of the toy model with all that a run has, in float32 with a loss scale.
struct ToyTraining {
  static TrainSection section(const std::string& optimizer, const EmaConfig& ema) {
    TrainSection train;
    train.optimizer = optimizer;
    if (optimizer == "prodigy_plus_schedulefree") train.optimizer_params = given_options("{d0: 1}");  // moves at once
    train.lr = 1e-2;
    train.ema_config = ema;
    return train;
  }
  static const Model& model() {
    static const Model opened = [] {
      ModelConfig config;
      config.name_or_path = toy_folder() / "flux_toy.safetensors";
      return Model(built_plugins(), config, "flux");
    }();
    return opened;
  }
  static NetworkConfig network() {
    NetworkConfig config;
    config.linear = 4;
    return config;
  }

  TrainSection train;
  Device device{tested_device()};
  AdapterSelection selection{network(), model().recipe(), 3};
  TrainPlan plan;
  Weights weights;
  StepRunner runner;

  ToyTraining(const std::string& optimizer, const EmaConfig& ema, std::optional<double> norm_limit = {})
      : train(section(optimizer, ema)),
        plan(device, model(), built_plugins(), train, selection, {StepShape{{64, 64}, {{"text_length", 32}}, 2}},
             {.norm_limit = norm_limit}),
        weights(device, model().checkpoint(), plan.largest().graph),
        runner(device, plan, weights, {.loss_scaling = true}) {
    plan.adapters->initialise(1);
    runner.initialise();
    runner.set_state(0, {1, 0});
  }
  StepResult step() {
    TrainStep& one = *plan.steps.begin()->second;
    runner.enqueue(plan.optimizer->rates(train), [&](int64_t) {
      return MicroBatch{&one, toy_inputs(one.train_graph().graph)};
    });
    return runner.collect();
  }
  HostTensor all(const std::string& section) const { return plan.adapters->download(section, plan.adapters->whole()); }
};

struct What {
  const char* optimizer;
  const char* averaged;  // section
  std::optional<double> norm_limit = {};
};

class EmaOf : public testing::TestWithParam<What> {};

// What is averaged is what would be saved without an average: of schedule-free optimizers the weights that they
// evaluate, with scale_weight_norms the scaled ones.
TEST_P(EmaOf, WhatWouldBeSaved) {
  ToyTraining training(GetParam().optimizer, {.use_ema = true, .ema_decay = 0.75}, GetParam().norm_limit);
  EXPECT_STREQ(training.plan.adapters->evaluated(), GetParam().averaged);
  EXPECT_STREQ(training.plan.adapters->shown(), "ema");
  HostTensor want = training.all("p");
  EXPECT_TRUE(training.all("ema").data == want.data) << "it begins as a copy";
  for (int step = 1; step <= 4; ++step) {
    EXPECT_EQ(training.step().averaged, step);
    const HostTensor w = training.all(GetParam().averaged);
    if (training.plan.optimizer->plan().evaluates()) {
      training.runner.update().evaluate();
      EXPECT_TRUE(training.all(GetParam().averaged).data == w.data) << "the weights of an earlier step were averaged";
      EXPECT_EQ(training.all("p").data == w.data, step == 1) << "they are not the weights in training";
    }
    EXPECT_GT(relative_error(w, want), 1e-3) << "the weights did not move";
    for (size_t i = 0; i < want.as<float>().size(); ++i) {
      const double average = want.as<float>()[i];
      want.as<float>()[i] = static_cast<float>(average - 0.25 * (average - static_cast<double>(w.as<float>()[i])));
    }
    const HostTensor got = training.all("ema");
    EXPECT_LE(relative_error(got, want), 2e-6) << step;
    want = got;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EmaOf,
                         testing::Values(What{"adamw", "p"}, What{"muon", "p"}, What{"adamw", "p", 0.05},
                                         What{"schedulefree_adamw", "evaluation"},
                                         What{"prodigy_plus_schedulefree", "evaluation"}),
                         [](const auto& info) {
                           return std::string(info.param.optimizer) + (info.param.norm_limit ? "_limited" : "");
                         });

TEST(Ema, ASkippedStepIsNoUpdate) {
  ToyTraining training("adamw", {.use_ema = true, .ema_decay = 0.5, .warmup = "num_updates"});
  const StepResult first = training.step();
  EXPECT_EQ(first.averaged, 1);
  const HostTensor before = training.all("ema"), weights = training.all("p");
  ASSERT_TRUE(before.data != weights.data) << "an update would change nothing";
  training.runner.set_state(first.updates, {INFINITY, 0});
  const StepResult skipped = training.step();
  ASSERT_FALSE(std::isfinite(skipped.grad_norm));
  EXPECT_EQ(skipped.averaged, 1);
  EXPECT_TRUE(training.all("ema").data == before.data);
  EXPECT_TRUE(training.all("p").data == weights.data);
  training.runner.set_state(skipped.updates, {1, 0});
  EXPECT_EQ(training.step().averaged, 2);
  EXPECT_TRUE(training.all("ema").data != before.data);
}

// Planned, and no more than planned: one float32 number for each that is trained.
TEST(Ema, MemoryIsPlanned) {
  const ToyTraining with("adamw", {.use_ema = true}), without("adamw", {});
  const int64_t section = with.plan.adapters->whole().shape.numel() * 4;
  EXPECT_EQ(with.plan.memory.adapters - without.plan.memory.adapters, section);
  const int64_t planned = with.plan.memory.total() - without.plan.memory.total();
  EXPECT_GE(planned, section);
  EXPECT_LE(planned, section + 4096);
  EXPECT_LE(with.device.peak() - without.device.peak(), planned);
}

const std::string ema_keys = "  ema_config: {use_ema: true, ema_decay: 0.5, warmup: diffusers}\n";

ToyRun& averaging(ToyRun& run, const std::string& keys = ema_keys) {
  return run.replace("train:\n", "train:\n" + keys);
}

fs::path newest_state(const ToyRun& run) {
  fs::path newest;
  for (const auto& file : fs::directory_iterator(run.output() / "state")) newest = std::max(newest, file.path());
  return newest;
}

TEST(EmaRun, AveragesAreSavedAndSampledWith) {
  ToyRun run, plain, second;
  for (ToyRun* each : {&run, &plain})
    each->set("lr", "1e-2")
        .set("sample_every", "4")
        .set("steps", "4")
        .set("prompts", "[a photo]")
        .replace("save_every: 2", "save_every: 0\n  dtype: float32");
  averaging(run);
  const HostResult planned = expect_trained(run.train({"--dry-run"}));
  EXPECT_THAT(planned.output, HasSubstr("average    of the weights: decay 0.5, warm-up diffusers; "));
  expect_trained(run.train());
  expect_trained(plain.train());

  // The file has the averages of the state, which has the weights as well: those of a run without an average.
  const Safetensors lora(run.lora()), state(newest_state(run)), other(newest_state(plain));
  EXPECT_EQ(lora.metadata().at("lora_host.ema"), "decay 0.5, warm-up diffusers");
  EXPECT_EQ(state.metadata().at("ema.updates"), "4");
  std::multiset<std::string> saved, averages;
  const auto bytes = [](const HostTensor& t) {
    return std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size());
  };
  for (const StoredTensor& t : lora.tensors())
    if (!t.name.ends_with("alpha")) saved.insert(bytes(lora.read(t.name)));
  for (const StoredTensor& t : state.tensors()) {
    if (t.name.starts_with("ema/")) averages.insert(bytes(state.read(t.name)));
    if (t.name.starts_with("p/")) {
      EXPECT_EQ(state.read(t.name).data, other.read(t.name).data) << t.name;
    }
  }
  EXPECT_FALSE(averages.empty());
  EXPECT_TRUE(saved == averages);

  // A run that starts from the file samples, before its first step, what this one sampled after its last.
  second.set("sample_every", "1").set("prompts", "[a photo]").set("steps", "1");
  second.replace("sample_every: 1", "sample_every: 1\n  sample_at_start: true");
  second.replace("linear: 2", "linear: 2\n  pretrained_lora_path: " + run.lora().string());
  expect_trained(second.train());
  const auto image = [](const ToyRun& of, const char* name) { return pixels_of(of.output() / "samples" / name); };
  EXPECT_TRUE(image(run, "000000004_0.png") == image(second, "000000000_0.png"));
  EXPECT_FALSE(image(run, "000000004_0.png") == image(plain, "000000004_0.png"));
}

// Two steps and two more give the file of four; the warm-up goes on where it was.
TEST(EmaRun, GoesOnToTheBit) {
  for (const char* optimizer : {"adamw", "schedulefree_adamw"}) {
    ToyRun whole, parts;
    for (ToyRun* run : {&whole, &parts}) averaging(*run).set("optimizer", optimizer).set("steps", "4");
    expect_trained(whole.train());
    expect_trained(parts.set("steps", "2").train());
    const HostResult resumed =
        expect_trained(parts.set("steps", "4").train({"--resume", "--optimizer-states", "host"}));
    EXPECT_THAT(resumed.output, testing::Not(HasSubstr("ema_config")));
    EXPECT_TRUE(get(parts.lora()) == get(whole.lora())) << optimizer;
    const Safetensors got(newest_state(parts)), want(newest_state(whole));
    EXPECT_EQ(got.metadata().at("ema.updates"), want.metadata().at("ema.updates"));
    for (const StoredTensor& t : want.tensors())
      EXPECT_TRUE(got.read(t.name).data == want.read(t.name).data) << optimizer << " " << t.name;
  }
}

// Another optimizer in mid-run, which evaluates its weights where the one before did not, or the other way round.
TEST(EmaRun, GoesOnOverPhases) {
  for (const char* optimizers : {"[{until: 2, optimizer: schedulefree_adamw}, {optimizer: adamw}]",
                                 "[{until: 2, optimizer: adamw}, {optimizer: schedulefree_adamw}]"}) {
    SCOPED_TRACE(optimizers);
    ToyRun whole, parts;
    for (ToyRun* run : {&whole, &parts})
      averaging(*run, ema_keys + "  phases: " + optimizers + "\n").set("steps", "4").set("lr", "1e-2");
    expect_trained(whole.train());
    const Safetensors state(newest_state(whole)), middle(whole.output() / "state" / "000000002.safetensors");
    EXPECT_EQ(state.metadata().at("ema.updates"), "4");
    for (const StoredTensor& t : state.tensors()) {
      if (!t.name.starts_with("ema/")) continue;
      const HostTensor average = state.read(t.name);
      EXPECT_FALSE(average.data == state.read("p/" + t.name.substr(4)).data) << t.name << " began anew";
      EXPECT_FALSE(average.data == middle.read(t.name).data) << t.name << " stands still";
    }
    expect_trained(parts.set("steps", "3").train());
    expect_trained(parts.set("steps", "4").train({"--resume"}));
    EXPECT_TRUE(get(parts.lora()) == get(whole.lora()));
  }
}

TEST(EmaRun, WhatBeginsOrEndsOnResumeIsSaid) {
  ToyRun run, plain;
  expect_trained(run.set("steps", "2").train());
  expect_trained(plain.set("steps", "4").train());
  // A decay so near 1 that the average stays what it began as.
  averaging(run, "  ema_config: {use_ema: true, ema_decay: 0.999999999}\n").set("steps", "4");
  const fs::path before = newest_state(run);
  const HostResult begun = expect_trained(run.train({"--resume"}));
  EXPECT_THAT(begun.output,
              HasSubstr("train.ema_config.use_ema: the saved run has no average of the weights; it begins "
                        "as a copy of those after step 2"));
  const Safetensors old(before), state(newest_state(run));
  EXPECT_EQ(state.metadata().at("ema.updates"), "2");
  for (const StoredTensor& t : state.tensors()) {
    if (!t.name.starts_with("ema/")) continue;
    const std::string p = "p/" + t.name.substr(4);
    EXPECT_LE(relative_error(state.read(t.name), old.read(p)), 1e-6) << t.name;
    EXPECT_NE(state.read(t.name).data, state.read(p).data) << t.name;
  }
  run.set("steps", "5").replace("use_ema: true", "use_ema: false");
  const HostResult ended = expect_trained(run.train({"--resume"}));
  EXPECT_THAT(ended.output,
              HasSubstr("train.ema_config.use_ema: the saved run has an average of the weights, this one keeps none; "
                        "after step 4 files and samples hold the weights themselves"));
  expect_trained(plain.set("steps", "5").train({"--resume"}));
  const Safetensors weights(newest_state(run)), undisturbed(newest_state(plain));
  for (const StoredTensor& t : undisturbed.tensors())
    EXPECT_EQ(weights.read(t.name).data, undisturbed.read(t.name).data);
  EXPECT_FALSE(weights.metadata().contains("ema.updates"));
}

}  // namespace
}  // namespace lh::test::ema_test
