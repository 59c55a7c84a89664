// Updates as a whole: what an optimizer may not do, tensors that are stacked, states that go on, and what all of it
// costs.
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "config/load.h"
#include "config/run_settings.h"
#include "plugin/descriptors.h"
#include "run/usual_rate.h"
#include "support/given_options.h"
#include "support/golden.h"
#include "support/graph_run.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/optimizer_run.h"
#include "support/paths.h"

namespace lh::test::optimizer_update_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Every rule of plugin "optim".
std::vector<std::string> rules() {
  std::vector<std::string> ids;
  for (const auto& plugin : built_plugins().plugins())
    if (std::string(plugin->entry().id) == "optim")
      for (const lh_optimizer* rule : plugin->optimizers()) ids.emplace_back(rule->id);
  return ids;
}

// Those whose states may be bfloat16.
std::vector<std::string> rules_with_narrow_states() {
  std::vector<std::string> ids;
  for (const auto& plugin : built_plugins().plugins())
    for (const lh_optimizer* rule : plugin->optimizers())
      for (const OptionSpec& spec : read_options(rule->options, rule->id))
        if (spec.name == "state_dtype") ids.emplace_back(rule->id);
  return ids;
}
GivenOptions narrow_states() { return given_options("{state_dtype: bf16}"); }

std::vector<RunTensor> tensors_of(const std::vector<Shape>& shapes, bool alternating = false) {
  std::vector<RunTensor> tensors;
  for (size_t i = 0; i < shapes.size(); ++i) {
    HostTensor p = ramp(shapes[i], static_cast<int64_t>(i) + 1);
    tensors.push_back({fmt::format("t{}", i), std::move(p), alternating && i % 2 == 1 ? LH_ROLE_UP : LH_ROLE_DOWN});
  }
  return tensors;
}

HostTensor gradient(const RunTensor& tensor, size_t i, int64_t step) {
  return ramp(tensor.p.desc.shape, 100 * step + static_cast<int64_t>(i));
}

void run_steps(OptimizerRun& run, int64_t from, int64_t to) {
  for (int64_t step = from; step < to; ++step) {
    for (size_t i = 0; i < run.tensors().size(); ++i) run.set_gradient(i, gradient(run.tensors()[i], i, step));
    run.step({1e-2f});
  }
}

struct Mistake {
  const char* name;
  const char* message;
};

class OptimizerMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(OptimizerMistakes, AreNamed) {
  const fs::path library = fs::path(binary_dir()) / "lib" / "lora-host-test" / "optimizer_mistakes.so";
  const Registry registry({}, {library});
  Device device(tested_device());
  setenv("LORA_TEST_MISTAKE", GetParam().name, 1);
  const std::string text = error_of([&] {
    const Optimizer rule(registry, "mistakes", {});
    OptimizerRun run(device, {&rule}, tensors_of({{8, 3}}));
    run_steps(run, 0, 1);
  });
  unsetenv("LORA_TEST_MISTAKE");
  if (std::string(GetParam().name) == "none")
    EXPECT_EQ(text, "");
  else
    EXPECT_THAT(text, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Of, OptimizerMistakes,
    testing::Values(
        Mistake{"none", ""}, Mistake{"no_passes", "optimizer 'mistakes', passes: gives 0, expected 1 to 8"},
        Mistake{"many_passes", "gives 9, expected 1 to 8"}, Mistake{"state_nan", "state 'd' has an initial value"},
        Mistake{"state_twice", "state 'm' has a name that is taken"},
        Mistake{"state_endless", "the list of states does not end: number 64 is still there"},
        Mistake{"state_name", "state 'lr' has a name that is taken"},
        Mistake{"state_reduction_name", "state 'sum.x' has a name that is taken"},
        Mistake{"state_scope", "state 'm' has the scope 7"},
        Mistake{"state_initial", "state 'm' has the initial value 7"},
        Mistake{"state_meaning", "state 'm' has the meaning 7"},
        Mistake{"state_type", "state 'm' is float16 [8, 3], expected float32, bfloat16, int32 or uint8"},
        Mistake{"state_empty", "state 'm' is empty"}, Mistake{"state_copy", "starts as a copy of the parameter"},
        Mistake{"flat_state",
                "state 'm' of a rule that says it is elementwise is float32 [3], expected the shape [24]"},
        Mistake{"unknown_input",
                "build_pass 0: asks for the input 'nothing', which this graph does not have. It has d, g"},
        Mistake{"too_early", "build_pass 0: asks for the input 'sum.x'"},
        Mistake{"input_shape", "declares the input 'g' as float32 [7, 7], expected float32 [8, 3]"},
        Mistake{"output_shape", "gives 'p' as float32 [1], expected float32 [8, 3]"},
        Mistake{"unknown_output", "gives 'q', which is no result of this graph. Results are m, p, sum.<x> and max.<x>"},
        Mistake{"group_state_in_pass", "gives 'd', which is no result"},
        Mistake{"state_absent", "the rule has no state 'v'"},
        Mistake{"not_elementwise", "and the rule says that it is elementwise"},
        Mistake{"no_change", "build_pass: no pass gives 'p', the new parameter: nothing would be trained"},
        Mistake{"tensor_in_between", "build_between 0: asks for the input 'p'"},
        Mistake{"tensor_state_in_between", "build_between 0: gives 'm', a state of each tensor"},
        Mistake{"scalar_shape", "gives 'rate' as float32 [2], expected float32 [1]"},
        Mistake{"gradient_in_evaluation", "build_evaluation: asks for the input 'g'"},
        Mistake{"state_in_evaluation", "build_evaluation: gives 'm', which is no result"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Optimizers, AreFoundByTheNamesThatPeopleUse) {
  for (const auto& [name, id] :
       std::map<std::string, std::string>{{"AdamW8bit", "adamw8bit"},
                                          {"adam8bit", "adamw8bit"},
                                          {"Prodigy", "prodigy"},
                                          {"dadaptation", "dadapt_adam"},
                                          {"AdamWScheduleFree", "schedulefree_adamw"},
                                          {"ProdigyPlusScheduleFree", "prodigy_plus_schedulefree"},
                                          {"Lion8bit", "lion8bit"}})
    EXPECT_EQ(Optimizer(built_plugins(), name, {}).id(), id) << name;
  EXPECT_THAT(error_of([] { Optimizer(built_plugins(), "prodgy", {}); }), HasSubstr("Did you mean prodigy?"));
}

// Those that find their own step size are given 1; a rate that somebody gave stays, and is spoken of.
TEST(Optimizers, HaveTheRateThatPeopleGiveThem) {
  const auto train_of = [](const std::string& keys) {
    return parse_config("model: {name_or_path: x}\ndatasets: [{folder_path: d}]\ntrain: {" + keys + "}\n", "c.yaml")
        .train;
  };
  const auto filled = [&](const std::string& keys) {
    TrainSection train = train_of(keys);
    fill_rates(built_plugins(), train);
    return train;
  };
  EXPECT_EQ(filled("optimizer: adamw").lr, 1e-4);
  EXPECT_EQ(filled("optimizer: Prodigy").lr, 1);
  EXPECT_EQ(filled("optimizer: dadaptation, lr: null").lr, 1);
  EXPECT_EQ(filled("optimizer: muon_keller").lr, 0.02);
  EXPECT_EQ(filled("optimizer: prodigy, lr: 1e-4").lr, 1e-4);
  const TrainSection phased = filled("optimizer: prodigy, phases: [{until: 5, optimizer: adamw}, {}]");
  EXPECT_EQ(RunSettings(phased, 0).train().lr, 1e-4);
  EXPECT_EQ(RunSettings(phased, 5).train().lr, 1);

  const auto said = [&](const std::string& keys) {
    return fmt::format("{}", fmt::join(low_rates(built_plugins(), train_of(keys), "c.yaml:3:9: "), "\n"));
  };
  EXPECT_EQ(said("optimizer: prodigy, lr: 1e-4"),
            "c.yaml:3:9: train: lr 0.0001 is far below 1, which is usual for prodigy: so it learns next to nothing. "
            "Leave it out, or set it to 1");
  EXPECT_EQ(said("optimizer: prodigy, lr: 0.5"), "");
  EXPECT_EQ(said("optimizer: adamw, lr: 1e-7"), "");
  EXPECT_THAT(said("optimizer: prodigy, lr: 1, train_text_encoder: true, text_encoder_lr: 5e-5"),
              HasSubstr("train: text_encoder_lr 5e-05 is far below 1"));
  EXPECT_THAT(said("lr: 1e-4, phases: [{until: 5}, {optimizer: prodigy}]"),
              HasSubstr("c.yaml:3:40: train.phases: lr 0.0001 is far below 1"));
}

TEST(Optimizers, RateThatNobodyCanSetIsRefused) {
  lh_optimizer rule = *built_plugins().optimizer("adamw").descriptor;
  rule.learning_rate = 0.5;
  EXPECT_NO_THROW(check_descriptor(rule, "x.so", LH_OPTIMIZER_FACTORY, 0));
  for (const double rate : {-1.0, 1e3, std::nan("")}) {
    rule.learning_rate = rate;
    EXPECT_THAT(error_of([&] { check_descriptor(rule, "x.so", LH_OPTIMIZER_FACTORY, 0); }),
                HasSubstr("x.so: lh.optimizer/2 'adamw' has learning_rate"));
  }
}

// A rule's own mistake in options is the user's; the host's checks are options_test's.
TEST(Optimizers, OptionsThatExcludeEachOther) {
  EXPECT_EQ(error_of([] { Optimizer(built_plugins(), "sgd", given_options("{nesterov: true}")); }),
            "train.optimizer_params: sgd: nesterov needs a momentum above 0 and a dampening of 0");
}

// Tensors of one shape and role go through one graph; of roles that alternate each through its own. The numbers are the
// same, and the work of a step does not grow with the tensors.
TEST(Updates, StackedTensorsAreUpdatedAsEachAlone) {
  Device device(tested_device());
  const std::vector<Shape> four(4, Shape{32, 16}), eight(8, Shape{32, 16});
  for (const std::string& id : rules()) {
    SCOPED_TRACE(id);
    const Optimizer rule(built_plugins(), id,
                         id.ends_with("8bit") ? given_options("{min_8bit_size: 0}") : GivenOptions{});
    OptimizerRun together(device, {&rule}, tensors_of(four)), apart(device, {&rule}, tensors_of(four, true));
    ASSERT_EQ(together.plan().blocks().size(), 1u);
    for (const UpdateGraphPlan& pass : together.plan().blocks()[0].passes)  // stored in place but what is read again
      EXPECT_EQ(pass.copied.size(), id == "automagic" ? 1u : 0u);
    EXPECT_EQ(together.plan().launches(), OptimizerRun(device, {&rule}, tensors_of(eight)).plan().launches());
    run_steps(together, 0, 3);
    run_steps(apart, 0, 3);
    for (size_t i = 0; i < four.size(); ++i)
      EXPECT_LE(golden::relative_error(together.p(i).as<float>(), apart.p(i).as<float>()), 1e-6) << i;
  }
}

// The op newton_schulz takes matrices with a side of at most 128; longer ones are multiplied out. A row of zeros
// changes nothing in the others, so that both ways can be compared.
TEST(Updates, MuonTakesMatricesWithoutAShortSide) {
  Device device(tested_device());
  const Optimizer rule(built_plugins(), "muon", {});
  for (const bool tall : {false, true}) {
    SCOPED_TRACE(tall);
    const Shape small = tall ? Shape{131, 128} : Shape{128, 131}, large = tall ? Shape{131, 129} : Shape{129, 131};
    const auto stepped = [&](const Shape& shape) {
      HostTensor zeros(Desc{DType::f32, shape}), gradient(Desc{DType::f32, shape});
      for (int64_t i = 0; i < shape[0]; ++i)
        for (int64_t j = 0; j < shape[1]; ++j)
          if ((tall ? j : i) < 128)
            gradient.as<float>()[static_cast<size_t>(i * shape[1] + j)] =
                std::sin(static_cast<float>(i * i + 3 * j)) + (i == j ? 4.0f : 0.0f);
      OptimizerRun run(device, {&rule}, {{"w", zeros}});
      run.set_gradient(0, gradient);
      run.step({1.0f});
      return run.p(0);
    };
    const HostTensor a = stepped(small), b = stepped(large);
    std::vector<float> common;
    for (int64_t i = 0; i < small[0]; ++i)
      for (int64_t j = 0; j < small[1]; ++j) common.push_back(b.as<float>()[static_cast<size_t>(i * large[1] + j)]);
    // tall: rows / columns is 131 / 128 and 131 / 129 in the factor of lr
    const double factor = tall ? std::sqrt(129.0 / 128.0) : 1;
    for (float& v : common) v = static_cast<float>(v * factor);
    EXPECT_LE(golden::relative_error(common, a.as<float>()), 2e-5);  // five float32 products of depth 131
  }
}

// States that were saved and restored go on to the same bits.
TEST(Updates, GoOnFromSavedStates) {
  Device device(tested_device());
  const std::vector<Shape> shapes{{16, 12}, {16, 12}, {40, 3}, {33}};
  std::vector<std::pair<std::string, GivenOptions>> all;
  for (const std::string& id : rules()) all.emplace_back(id, GivenOptions{});
  for (const std::string& id : rules_with_narrow_states()) all.emplace_back(id, narrow_states());
  for (const auto& [id, options] : all) {
    SCOPED_TRACE(id + (options.empty() ? "" : " in bfloat16"));
    const Optimizer rule(built_plugins(), id, options);
    OptimizerRun whole(device, {&rule}, tensors_of(shapes)), first(device, {&rule}, tensors_of(shapes)),
        second(device, {&rule}, tensors_of(shapes));
    run_steps(whole, 0, 6);
    run_steps(first, 0, 3);
    second.go_on_from(first);
    run_steps(second, 3, 6);
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_EQ(second.p(i).data, whole.p(i).data) << i;
      EXPECT_EQ(second.evaluated(i).data, whole.evaluated(i).data) << i;
    }
  }
}

// Bytes of states for each trained number, at the size of adapters of rank 16 on layers of 3072.
double state_bytes(const std::string& id, const GivenOptions& options = {}) {
  Device device("cpu");
  const Optimizer rule(built_plugins(), id, options);
  std::vector<TrainedTensor> tensors;
  int64_t elements = 0;
  for (const auto& [role, shape] : {std::pair(LH_ROLE_DOWN, Shape{16, 3072}), std::pair(LH_ROLE_UP, Shape{3072, 16})})
    for (int i = 0; i < 8; ++i) {
      tensors.push_back(
          {{.name = fmt::format("t{}", elements), .role = role, .rank = 16, .shape = shape}, false, elements});
      elements += shape.numel();
    }
  const UpdatePlan plan({{"denoiser", &rule}}, std::move(tensors));
  return static_cast<double>(plan.state_bytes()) / static_cast<double>(elements);
}

TEST(Updates, EightBitStatesTakeAQuarter) {
  EXPECT_NEAR(state_bytes("adamw"), 8, 0.01);
  EXPECT_LE(state_bytes("adamw8bit"), 0.255 * state_bytes("adamw"));
  EXPECT_LE(state_bytes("lion8bit"), 0.255 * state_bytes("lion"));
  EXPECT_LT(state_bytes("adafactor"), 0.3);
}

TEST(Updates, NarrowStatesTakeHalfAndAFewLaunchesMore) {
  struct Row {
    double bytes;
    int64_t launches;
  };
  // Rounding is part of the rule's launch; the step as an integer is one more. What is rounded is not computed again
  // behind prodigy's sums: it is stored.
  const std::map<std::string, Row> rows{
      {"adam", {4, 1}}, {"adamw", {4, 1}}, {"came", {2.5, 1}}, {"lion", {2, 1}}, {"prodigy", {10, 3}}};
  ASSERT_EQ(rules_with_narrow_states().size(), rows.size());
  Device device(tested_device());
  for (const auto& [id, want] : rows) {
    EXPECT_NEAR(state_bytes(id, narrow_states()), want.bytes, 0.01) << id;
    const Optimizer wide(built_plugins(), id, {}), narrow(built_plugins(), id, narrow_states());
    const std::vector<Shape> four(4, Shape{32, 16});
    const OptimizerRun plain(device, {&wide}, tensors_of(four)), rounded(device, {&narrow}, tensors_of(four));
    EXPECT_EQ(rounded.plan().blocks().size(), 1u) << id;
    EXPECT_EQ(rounded.plan().launches(), plain.plan().launches() + want.launches) << id;
  }
}

// A large gradient for a few steps, then a small one: v has to fall by less than bfloat16 sees in a step. Its mean over
// elements is the mean of what float32 would have kept, to the spread that the rounding gives: in each step up to
// gap^2 / 4, gap <= 2^-7 v. Rounded to nearest it would stay where it is.
TEST(Updates, NarrowStatesAreRightInTheMean) {
  constexpr double beta = 0.999;
  constexpr int steps = 400;
  constexpr int64_t count = 1024;
  Device device(tested_device());
  const Optimizer rule(built_plugins(), "adamw", narrow_states());
  std::vector<RunTensor> tensors = tensors_of({{32, 32}, {32, 32}});
  tensors[1].group = 1;
  OptimizerRun run(device, {&rule, &rule}, std::move(tensors));
  double mean = 0, variance = 0, nearest = 0;
  for (int step = 0; step < steps; ++step) {
    const float g = step < 10 ? 1.0f : 0.0625f;
    HostTensor gradient(Desc{DType::f32, {32, 32}});
    std::ranges::fill(gradient.as<float>(), g);
    for (size_t i = 0; i < 2 && step % 10 == 0; ++i) run.set_gradient(i, gradient);
    run.step({1e-3f, 1e-3f});
    mean = beta * mean + (1 - beta) * g * g;
    variance = beta * beta * variance + std::pow(2.0, -14) * (variance + mean * mean) / 4;
    const auto sum = static_cast<float>(beta * nearest + (1 - beta) * g * g);
    nearest =
        converted(converted(HostTensor::from_floats({1}, std::span(&sum, 1)), DType::bf16), DType::f32).as<float>()[0];
  }
  const double limit = 5 * std::sqrt(variance / count) + 1e-5 * mean;
  ASSERT_GT(nearest - mean, 20 * limit) << "rounding to nearest would pass";
  for (const char* name : {"v/t0", "v/t1"}) {
    const HostTensor stored = run.state(name);
    ASSERT_EQ(stored.desc.dtype, DType::bf16);
    const HostTensor v = converted(stored, DType::f32);
    double sum = 0, apart = 0;
    for (const float x : v.as<float>()) sum += x, apart += (x - mean) * (x - mean);
    EXPECT_NEAR(sum / count, mean, limit) << name;
    EXPECT_GT(apart, 0) << "the elements of " << name << " were rounded alike";
    EXPECT_LE(apart / count, 2 * variance) << name;
  }
  EXPECT_NE(run.state("v/t0").data, run.state("v/t1").data) << "groups share their draws";
}

// Rules that keep their averages in bfloat16 go where they go in float32. A rounding has a deviation of about 2^-9 of
// the number, which m with its decay of 0.9 holds 1 / sqrt(1 - 0.81) times, and v after 20 steps sqrt(20) times: 0.9%
// of both together, half of it in the root. The sign of lion flips where an average is near 0.
TEST(Updates, NarrowStatesFollowWideOnes) {
  Device device(tested_device());
  const std::vector<Shape> shapes{{16, 12}, {16, 12}, {40, 3}, {33}};
  for (const std::string& id : rules_with_narrow_states()) {
    SCOPED_TRACE(id);
    // A first estimate of 1, so that prodigy moves from the start.
    const std::string d0 = id == "prodigy" ? "d0: 1, " : "";
    const auto with = [&](const std::string& type) { return given_options("{" + d0 + "state_dtype: " + type + "}"); };
    const Optimizer wide(built_plugins(), id, with("fp32")), narrow(built_plugins(), id, with("bf16"));
    OptimizerRun want(device, {&wide}, tensors_of(shapes)), got(device, {&narrow}, tensors_of(shapes));
    run_steps(want, 0, 20);
    run_steps(got, 0, 20);
    double apart = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      std::vector<float> far, close;
      const HostTensor start = tensors_of(shapes)[i].p, a = want.p(i), b = got.p(i);
      for (size_t k = 0; k < start.as<float>().size(); ++k) {
        far.push_back(a.as<float>()[k] - start.as<float>()[k]);
        close.push_back(b.as<float>()[k] - start.as<float>()[k]);
      }
      const double error = golden::relative_error(close, far);
      EXPECT_LE(error, id == "lion" ? 0.1 : 0.01) << i;
      apart += error;
    }
    EXPECT_GT(apart, 0);
  }
}

// What docs/optimizers.md says of each rule that the rule itself does not.
const std::map<std::string, std::string> sources{
    {"adafactor", "Shazeer & Stern 2018; transformers `Adafactor`"},
    {"adam", "Kingma & Ba 2014; torch.optim.Adam"},
    {"adamw", "Loshchilov & Hutter 2017; torch.optim.AdamW"},
    {"adamw8bit", "Dettmers et al. 2022; bitsandbytes `AdamW8bit`"},
    {"automagic", "ai-toolkit `toolkit/optimizers/automagic.py`"},
    {"came", "Luo et al. 2023; came-pytorch"},
    {"dadapt_adam", "Defazio & Mishchenko 2023; dadaptation `DAdaptAdam`"},
    {"lion", "Chen et al. 2023; lion-pytorch"},
    {"lion8bit", "bitsandbytes `Lion8bit`"},
    {"muon", "Jordan 2024; torch.optim.Muon"},
    {"muon_keller", "Jordan 2024; KellerJordan/Muon `SingleDeviceMuonWithAuxAdam`"},
    {"prodigy", "Mishchenko & Defazio 2023; prodigyopt"},
    {"prodigy_plus_schedulefree", "prodigy-plus-schedule-free 2.0"},
    {"rmsprop", "Hinton 2012; torch.optim.RMSprop"},
    {"schedulefree_adamw", "Defazio et al. 2024; schedulefree `AdamWScheduleFree`"},
    {"schedulefree_radam", "Defazio et al. 2024; schedulefree `RAdamScheduleFree`"},
    {"sgd", "torch.optim.SGD"}};

std::string reference() {
  std::string
      table =
          "\n| `optimizer` | also known as | formula | usual `lr` | state bytes a parameter |\n|---|---|---|---|---|\n",
      options;
  for (const auto& plugin : built_plugins().plugins()) {
    if (std::string(plugin->entry().id) != "optim") continue;
    for (const lh_optimizer* rule : plugin->optimizers()) {
      std::vector<std::string> names;
      for (const char* const* name = rule->names; name != nullptr && *name != nullptr; ++name)
        names.push_back(fmt::format("`{}`", *name));
      table +=
          fmt::format("| `{}` | {} | {} | {} | {:.2f} |\n", rule->id, fmt::join(names, ", "), sources.at(rule->id),
                      usual_rate(built_plugins(), rule->id).value_or(TrainSection::usual_lr), state_bytes(rule->id));
      options += fmt::format("\n### {}\n\n| option | value | default | meaning |\n|---|---|---|---|\n", rule->id);
      for (const OptionSpec& spec : read_options(rule->options, rule->id))
        options += fmt::format(
            "| `{}` | {}{} | {} | {} |\n", spec.name,
            spec.type == LH_OPTION_CHOICE ? fmt::format("`{}`", fmt::join(spec.choices, "`, `")) : spec.value_name(),
            spec.nullable ? " or null" : "", spec.otherwise.empty() ? "" : fmt::format("`{}`", spec.otherwise),
            spec.help);
    }
  }
  return table + options + "\n";
}

// docs/optimizers.md holds the reference between two marker lines; LORA_UPDATE_DOCS=1 rewrites it.
TEST(Updates, DocumentationIsUpToDate) {
  const fs::path path = fs::path(source_dir()) / "docs" / "optimizers.md";
  const std::string begin = "<!-- optimizers -->\n", end = "<!-- end of optimizers -->\n", text = get(path);
  const size_t from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, text.npos);
  ASSERT_NE(to, text.npos);
  if (std::getenv("LORA_UPDATE_DOCS") != nullptr)
    put(path, text.substr(0, from) + begin + reference() + text.substr(to));
  else
    EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), reference())
        << "run lora_tests with LORA_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace lh::test::optimizer_update_test
