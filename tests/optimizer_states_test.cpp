// Optimizer states in host memory: where they are between updates changes no bit of one, and the device has only a
// window of them.
#include <gmock/gmock.h>
#include <signal.h>

#include <random>
#include <regex>

#include "run/state_seconds.h"
#include "support/device.h"
#include "support/given_options.h"
#include "support/graph_run.h"
#include "support/model_files.h"
#include "support/optimizer_run.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"

namespace lh::test::optimizer_states_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t small_part = 4096;  // bytes: 512 numbers of adamw

// Every rule of plugin "optim", once more where its states may have another type.
std::vector<std::pair<std::string, GivenOptions>> rules() {
  std::vector<std::pair<std::string, GivenOptions>> all;
  for (const auto& plugin : built_plugins().plugins()) {
    if (std::string(plugin->entry().id) != "optim") continue;
    for (const lh_optimizer* rule : plugin->optimizers()) {
      all.emplace_back(rule->id, GivenOptions{});
      for (const OptionSpec& spec : read_options(rule->options, rule->id)) {
        if (spec.name == "state_dtype") all.emplace_back(rule->id, given_options("{state_dtype: bf16}"));
        if (spec.name == "min_8bit_size") all.emplace_back(rule->id, given_options("{min_8bit_size: 0}"));
      }
    }
  }
  return all;
}

std::vector<RunTensor> tensors() {
  std::vector<RunTensor> all;
  const std::vector<std::pair<Shape, int32_t>> shapes{{{32, 16}, LH_ROLE_DOWN}, {{32, 16}, LH_ROLE_DOWN},
                                                      {{40, 48}, LH_ROLE_DOWN}, {{33}, LH_ROLE_OTHER},
                                                      {{16, 64}, LH_ROLE_UP},   {{16, 64}, LH_ROLE_UP}};
  for (const auto& [shape, role] : shapes) {
    const auto i = static_cast<int64_t>(all.size());
    all.push_back({fmt::format("t{}", i), ramp(shape, i + 1), role, i < 4 ? 0u : 1u});
  }
  return all;
}

void run_steps(OptimizerRun& run, int64_t steps, const Update::Part& part = Update::always) {
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < run.tensors().size(); ++i)
      run.set_gradient(i, ramp(run.tensors()[i].p.desc.shape, 100 * step + static_cast<int64_t>(i)));
    run.step({1e-2f, 3e-3f}, part);
  }
}

void expect_equal(OptimizerRun& got, OptimizerRun& want) {
  for (size_t i = 0; i < want.tensors().size(); ++i) {
    EXPECT_EQ(got.p(i).data, want.p(i).data) << "tensor " << i;
    if (want.plan().evaluates()) {
      EXPECT_EQ(got.evaluated(i).data, want.evaluated(i).data) << "tensor " << i;
    }
  }
  ASSERT_EQ(got.update().states().size(), want.update().states().size());
  for (const StoredState& state : want.update().states())
    EXPECT_EQ(got.state(state.key).data, want.state(state.key).data) << state.key;
}

TEST(StatesInHostMemory, ChangeNoBitOfAnUpdate) {
  Device device(tested_device());
  size_t travelled = 0;
  for (const auto& [id, options] : rules()) {
    SCOPED_TRACE(id + (options.empty() ? "" : " with other states"));
    const Optimizer rule(built_plugins(), id, options);
    OptimizerRun here(device, {&rule, &rule}, tensors()),
        there(device, {&rule, &rule}, tensors(), StatePlace::host, small_part);
    EXPECT_EQ(there.plan().state_bytes(), here.plan().state_bytes());
    travelled += there.plan().step_travel().stays.empty() ? 0 : 1;
    run_steps(here, 4);
    run_steps(there, 4);
    expect_equal(there, here);
  }
  EXPECT_GT(travelled, 15u);
}

// adamw's states are cut, so that the window holds two parts; what adds up over all numbers, or draws by their place,
// is not.
TEST(StatesInHostMemory, TravelInParts) {
  Device device(tested_device());
  const auto blocks = [&](const std::string& id, const GivenOptions& options = {}) {
    const Optimizer rule(built_plugins(), id, options);
    const OptimizerRun run(device, {&rule, &rule}, tensors(), StatePlace::host, small_part);
    return run.plan().blocks().size();
  };
  EXPECT_EQ(blocks("adamw"), 10u) << "2977 numbers by 512, and 2048";
  EXPECT_EQ(blocks("adamw", given_options("{state_dtype: bf16}")), 2u);
  const Optimizer rule(built_plugins(), "adamw", {});
  const OptimizerRun run(device, {&rule, &rule}, tensors(), StatePlace::host, small_part);
  EXPECT_GE(run.plan().arena_bytes(), 2 * small_part);
  EXPECT_LT(run.plan().arena_bytes(), 3 * small_part);
  EXPECT_GT(run.plan().state_bytes(), 8 * small_part);
}

// A gradient that is not finite: what comes goes back as it came.
TEST(StatesInHostMemory, AreWhatTheyWereWhereTheUpdateIsLeftOut) {
  Device device(tested_device());
  for (const char* id : {"adamw", "adamw8bit", "schedulefree_adamw"}) {
    SCOPED_TRACE(id);
    const Optimizer rule(built_plugins(), id, {});
    OptimizerRun run(device, {&rule, &rule}, tensors(), StatePlace::host, small_part),
        before(device, {&rule, &rule}, tensors(), StatePlace::host, small_part);
    run_steps(run, 2);
    run_steps(before, 2);
    run_steps(run, 1, [](const std::function<void()>&) {});
    expect_equal(run, before);
  }
}

// Of any order of visits: a block is in its place from its first to its last visit, alone.
TEST(StateTravel, GivesEachStayItsPlaceAlone) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const size_t blocks = 1 + random() % 5, places = std::min<size_t>(blocks, 2);
    std::vector<StateVisit> visits;
    for (size_t v = 0; v < 12; ++v) {
      const size_t block = round % 2 == 0 ? v % blocks : random() % blocks;
      const bool used = random() % 8 != 0, written = used && random() % 2 == 0;
      visits.push_back({block, used ? std::set<std::string>{"m"} : std::set<std::string>{},
                        written ? std::set<std::string>{"m"} : std::set<std::string>{}});
    }
    const StateTravel travel = plan_travel(visits, places);
    ASSERT_EQ(travel.stay_of.size(), visits.size());
    size_t before = 0;
    for (size_t s = 0; s < travel.stays.size(); ++s) {
      const StateStay& stay = travel.stays[s];
      ASSERT_LT(stay.place, places);
      EXPECT_LE(stay.fetched_before, stay.first);
      EXPECT_GE(stay.first, before) << "ways there are taken in the order of the first visits";
      before = stay.first;
      for (size_t other = 0; other < s; ++other) {
        const StateStay& earlier = travel.stays[other];
        if (earlier.place == stay.place) {
          EXPECT_LT(earlier.last, stay.fetched_before) << "its place is in use";
        }
        if (earlier.block == stay.block) {
          EXPECT_LT(earlier.last, stay.fetched_before) << "it is not on its way back yet";
        }
      }
    }
    for (size_t v = 0; v < visits.size(); ++v) {
      ASSERT_EQ(travel.stay_of[v].has_value(), !visits[v].used.empty());
      if (!travel.stay_of[v]) continue;
      const StateStay& stay = travel.stays[*travel.stay_of[v]];
      EXPECT_EQ(stay.block, visits[v].block);
      EXPECT_TRUE(stay.first <= v && v <= stay.last);
      if (!visits[v].written.empty()) {
        EXPECT_EQ(stay.written, visits[v].written);
      }
    }
  }
}

// Both ways at once, and the first part and the last alone.
TEST(StatesInHostMemory, TakeThePredictedTimeOfTheirWays) {
  Device device(tested_device());
  const Optimizer rule(built_plugins(), "adamw", {});
  const OptimizerRun there(device, {&rule, &rule}, tensors(), StatePlace::host, small_part),
      here(device, {&rule, &rule}, tensors());
  const auto seconds = [](const UpdatePlan& plan, double link) {
    return state_seconds(plan, {.products = 1e12, .memory = 1e12, .link = link});
  };
  EXPECT_EQ(seconds(here.plan(), 1), 0);
  const double one_way = static_cast<double>(there.plan().state_bytes()) / 0.95;
  const double part = static_cast<double>(small_part) / 0.95;
  const double slow = seconds(there.plan(), 1);
  EXPECT_GE(slow, one_way);
  EXPECT_LE(slow, one_way + 3 * part);
  EXPECT_LE(seconds(there.plan(), 1e15), 1e-9);
}

struct StatesRun : ToyRun {
  explicit StatesRun(const std::string& memory) { config() += "memory: " + memory + "\n"; }
};

TEST(StatesInHostMemoryRun, TrainsTheSameLora) {
  const auto lora = [](const char* optimizer, const std::string& memory) {
    StatesRun run(memory);
    run.set("optimizer", optimizer).set("gradient_accumulation", "2").set("steps", "3");
    run.replace("train:\n", "train:\n  ema_config: {use_ema: true, ema_decay: 0.9}\n");
    expect_trained(run.train());
    return get(run.lora());
  };
  for (const char* optimizer : {"adamw", "adamw8bit", "adafactor", "prodigy", "schedulefree_adamw"})
    EXPECT_TRUE(lora(optimizer, "{optimizer_states: host, stream: 100%}") ==
                lora(optimizer, "{optimizer_states: device}"))
        << optimizer;
}

TEST(StatesInHostMemoryRun, GoesOnAfterAKillWhereverTheyAre) {
  StatesRun plain("{optimizer_states: device}"), run("{optimizer_states: host}");
  plain.set("optimizer", "prodigy").set("steps", "8");
  expect_trained(plain.train());
  run.set("optimizer", "prodigy").set("steps", "8").set("save_every", "1");
  {
    HostProcess process(run.command());
    reaches(process, run, 3);
    process.send(SIGKILL);
    process.wait();
  }
  run.replace("optimizer_states: host", "optimizer_states: device");
  expect_trained(run.train({"--resume"}));
  EXPECT_TRUE(get(run.lora()) == get(plain.lora()));
}

std::string figure(const std::string& output, const std::string& pattern) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(output, match, std::regex(pattern))) << output;
  return match.empty() ? "" : match[1].str();
}

std::vector<std::string> bare(const char* command, const std::vector<std::string>& more) {
  std::vector<std::string> all{command, "--model", toy_denoiser().string(), "--resolution", "64", "--rank", "256"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// The device keeps to the plan: what is there in host memory is not on it.
TEST(StatesInHostMemoryRun, TakesWhatIsPlanned) {
  const auto bench = [](const std::string& place) {
    return run_host(bare("bench", {"--device", tested_device(), "--dtype", "fp32", "--repeat", "2",
                                   "--optimizer-states", place, "--budget", "2GiB"}));
  };
  const HostResult here = bench("device"), there = bench("host");
  for (const HostResult* result : {&here, &there}) {
    ASSERT_EQ(result->code, 0) << result->output;
    EXPECT_TRUE(std::regex_search(result->output, std::regex(R"(its memory [+-]0\.0%)"))) << result->output;
  }
  const char* const planned = R"(([\d.]+) MiB planned)";
  const char* const states = R"(update +[\d.]+ ms, ([\d.]+) MiB of states)";
  const double less = std::stod(figure(here.output, planned)) - std::stod(figure(there.output, planned));
  EXPECT_NEAR(less, std::stod(figure(here.output, states)), 0.2);
  EXPECT_GT(less, 10);
  EXPECT_TRUE(std::regex_search(
      there.output,
      std::regex(R"(states +[\d.]+ MiB in host memory, for which an update is predicted to take [\d.]+ ms longer)")))
      << there.output;
  EXPECT_EQ(figure(here.output, R"(loss ([\d.]+))"), figure(there.output, R"(loss ([\d.]+))"));
}

// Nothing is moved while there is room; where only that makes room, it is, within memory.host.
TEST(StatesInHostMemoryRun, AreChosenWhereMemoryIsShort) {
  const auto plan = [](const std::string& budget, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"--card", "8 GiB, 50 TFLOP/s, 400 GB/s", "--budget", budget};
    words.insert(words.end(), more.begin(), more.end());
    return run_host(bare("plan", words)).output;
  };
  const char* const least = R"(does not fit: at least ([\d.]+) MiB)";
  const double with = std::stod(figure(plan("1MiB"), least));
  const double without = std::stod(figure(plan("1MiB", {"--optimizer-states", "device"}), least));
  ASSERT_GT(without, with + 10);
  const std::string between = fmt::format("{:.1f}MiB", (with + without) / 2);
  const char* const states = R"(MiB +[\d.]+ \w+ +[\d.]+ \w+ +\d+ of \d+ +([\d.]+) MiB)";
  EXPECT_GT(std::stod(figure(plan(between), states)), 10);
  EXPECT_THAT(plan(between, {"--optimizer-states", "device"}), HasSubstr("does not fit"));
  EXPECT_THAT(plan(between, {"--host-memory", "1MiB"}), HasSubstr("does not fit"));
  EXPECT_TRUE(std::regex_search(plan("4GiB"), std::regex(R"(4\.0 GiB +0\.0 MiB +0\.0 MiB +0 of \d+ +0\.0 MiB)")));
}

TEST(StatesInHostMemoryRun, IsPlannedSaidAndRefused) {
  StatesRun run("{optimizer_states: host}");
  const HostResult dry = expect_trained(run.train({"--dry-run"}));
  EXPECT_TRUE(std::regex_search(dry.output, std::regex(R"([\d.]+ MiB of optimizer states in host memory between the )"
                                                       R"(updates, for which an update is predicted to take )")))
      << dry.output;
  StatesRun none("{optimizer_states: host}");
  none.set("optimizer", "sgd");
  EXPECT_THAT(expect_trained(none.train({"--dry-run"})).output, Not(HasSubstr("optimizer states in host memory")));
  StatesRun tight("{optimizer_states: device, budget: 1MiB}");
  const HostResult refused = tight.train({"--dry-run"});
  EXPECT_EQ(refused.code, 4) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("memory.optimizer_states: auto: "));
  StatesRun full("{optimizer_states: host, host: 0.0000001}");
  EXPECT_THAT(full.train({"--dry-run"}).output, HasSubstr("of host memory, and 0.0 MiB are available"));
  StatesRun wrong("{optimizer_states: disk}");
  const HostResult result = wrong.train({"--dry-run"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("memory.optimizer_states"));
}

}  // namespace
}  // namespace lh::test::optimizer_states_test
