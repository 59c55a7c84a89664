// Options of a plugin's part: what a user may write for each type, and what a wrong list or a wrong value says.
#include "plugin/options.h"

#include <gmock/gmock.h>

#include "lora_host/lora_host.hpp"
#include "support/given_options.h"
#include "support/io_files.h"

namespace lh::test::options_test {
namespace {

namespace option = lora_host::option;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* modes[] = {"slow", "fast", nullptr};
constexpr lh_option list[] = {option::reals("betas", "[0.9, 0.999]", 2, option::from_below(0, 1), "Two numbers."),
                              option::nullable(option::real("eps", "1e-8", option::above(0), "A number.")),
                              option::integer("steps", "0", option::within(0, 10), "A count."),
                              option::flag("decouple", "true", "A flag."),
                              option::choice("mode", "slow", modes, "A word."),
                              option::nullable(option::real("beta3", nullptr, option::any, "No default.")),
                              option::end};

OptionValues checked(const std::string& flow) {
  return check_options(read_options(list, "optimizer 'x'"), given_options(flow), "train.optimizer_params",
                       "optimizer 'x'");
}

TEST(Options, DefaultsAreGivenWhereTheUserSaysNothing) {
  EXPECT_EQ(checked("{}").text(), "betas=[0.9, 0.999] eps=1e-08 steps=0 decouple=true mode=slow");
  EXPECT_EQ(checked("{steps: null}").text(), checked("{}").text());
}

TEST(Options, ReachThePluginInTheOrderOfTheList) {
  const OptionValues values = checked("{mode: fast, beta3: 0.5, decouple: no, eps: null, betas: [0, 0.5], steps: 7}");
  EXPECT_EQ(values.text(), "betas=[0, 0.5] steps=7 decouple=false mode=fast beta3=0.5");
  const std::vector<lh_attr> attrs = values.attrs();
  ASSERT_EQ(attrs.size(), 5u);
  const lora_host::Options options(attrs.data(), 5);
  EXPECT_THAT(options.reals("betas"), ElementsAre(0, 0.5));
  EXPECT_EQ(options.integer("steps"), 7);
  EXPECT_FALSE(options.flag("decouple"));
  EXPECT_EQ(options.text("mode"), "fast");
  EXPECT_EQ(options.real("beta3"), 0.5);
  EXPECT_FALSE(options.find_real("eps").has_value());
}

struct Mistake {
  const char* given;
  const char* message;
};

class OptionMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(OptionMistakes, NamePlaceAndFix) {
  EXPECT_EQ(error_of([] { checked(GetParam().given); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Values, OptionMistakes,
    testing::Values(
        Mistake{"{beta: [0.9, 0.99]}",
                "c.yaml:1:28: train.optimizer_params.beta: optimizer 'x' has no such option. Did you mean betas?"},
        Mistake{"{momentum_of_all: 1}",
                "c.yaml:1:28: train.optimizer_params.momentum_of_all: optimizer 'x' has no such "
                "option. Known: betas, eps, steps, decouple, mode, beta3"},
        Mistake{"{betas: [0.9, 1]}",
                "c.yaml:1:41: train.optimizer_params.betas: must be at least 0 and less than 1, found 1"},
        Mistake{"{betas: [0.9]}", "c.yaml:1:35: train.optimizer_params.betas: expected a list of 2 numbers, found 1"},
        Mistake{"{betas: 0.9}", "c.yaml:1:35: train.optimizer_params.betas: expected a list of 2 numbers, found 0.9"},
        Mistake{"{eps: 0}", "c.yaml:1:33: train.optimizer_params.eps: must be more than 0, found 0"},
        Mistake{"{eps: nan}", "c.yaml:1:33: train.optimizer_params.eps: expected a number, more than 0, found nan"},
        Mistake{"{eps: .inf}", "c.yaml:1:33: train.optimizer_params.eps: expected a number, more than 0, found .inf"},
        Mistake{"{steps: 2.5}", "c.yaml:1:35: train.optimizer_params.steps: expected an integer, found 2.5"},
        Mistake{"{steps: 11}", "c.yaml:1:35: train.optimizer_params.steps: must be 0 to 10, found 11"},
        Mistake{"{decouple: 3}", "c.yaml:1:38: train.optimizer_params.decouple: expected true or false, found 3"},
        Mistake{"{mode: fats}",
                "c.yaml:1:34: train.optimizer_params.mode: must be slow, fast, found fats. Did you mean fast?"},
        Mistake{"{eps: -1, steps: x}",
                "c.yaml:1:33: train.optimizer_params.eps: must be more than 0, found -1\n"
                "c.yaml:1:44: train.optimizer_params.steps: expected an integer, found x"}));

TEST(Options, AListThatIsWrongIsThePluginsMistake) {
  const auto says = [](lh_option option) {
    const lh_option options[] = {option, option::end};
    return error_of([&] { read_options(options, "optimizer 'x'"); });
  };
  EXPECT_THAT(says({"a", 9, 0, 0, nullptr, 0, 0, nullptr, "Help."}), HasSubstr("option 'a' has the type 9"));
  EXPECT_THAT(says({"a", LH_OPTION_INT, 64, 0, nullptr, 0, 0, nullptr, "Help."}), HasSubstr("has flags 0x40"));
  EXPECT_THAT(says(option::real("a", "2", option::within(0, 1), "Help.")),
              HasSubstr("option 'a' has the default 2: must be 0 to 1"));
  EXPECT_THAT(says(option::real("a", "0", option::within(1, 0), "Help.")), HasSubstr("has a min above its max"));
  EXPECT_THAT(says(option::choice("a", "x", nullptr, "Help.")), HasSubstr("has no choices"));
  EXPECT_THAT(says(option::flag("a", "true", nullptr)), HasSubstr("has no help"));
  const lh_option twice[] = {option::flag("a", "true", "Help."), option::flag("a", "true", "Help."), option::end};
  EXPECT_THAT(error_of([&] { read_options(twice, "optimizer 'x'"); }), HasSubstr("option 'a' is listed twice"));
}

TEST(Options, HelpSaysTypeRangeAndDefault) {
  EXPECT_THAT(
      option_lines(read_options(list, "optimizer 'x'")),
      ElementsAre("betas     (list of 2 numbers, at least 0 and less than 1, default [0.9, 0.999]) Two numbers.",
                  "eps       (number, more than 0 or null, default 1e-8) A number.",
                  "steps     (integer, 0 to 10, default 0) A count.", "decouple  (true|false, default true) A flag.",
                  "mode      (slow|fast, default slow) A word.", "beta3     (number or null) No default."));
}

}  // namespace
}  // namespace lh::test::options_test
