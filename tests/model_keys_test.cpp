// Keys of `model:` that plugins have: how their checkpoint YAML names them, and what a user's mistakes are answered
// with.
#include "config/model_keys.h"

#include <gmock/gmock.h>

#include "cli/plugin_flags.h"
#include "config/load.h"
#include "io/checkpoint.h"
#include "plugin/model.h"
#include "support/io_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::model_keys_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

const std::string head = "components:\n  denoiser: {marker: a}\n";
const std::string tiny = head + R"(  vae: {marker: b, config: vae_path, help: The autoencoder.}
  one: {marker: c, config: text_path, help: Both encoders.}
  two: {marker: d, config: text_path}
files:
  words_path: {help: The vocabulary.}
settings:
  variant: {one_of: [small, large], help: Which one.}
  strength: {number: [0, 1.5], help: How much.}
  causal: {flag: true, help: Whether.}
  note: {text: true, help: Anything.}
)";

PluginKeys keys_of(const std::string& yaml, const std::string& plugin = "tiny") {
  return {plugin, CheckpointSpec::parse(yaml, plugin).keys};
}

std::vector<PluginKeys> both() {
  return {keys_of(tiny), keys_of(head + "  t5: {marker: e, config: t5_path, help: T5.}\n", "other")};
}

ModelConfig config_with(std::map<std::string, GivenValue> given) {
  ModelConfig config;
  config.given = std::move(given);
  return config;
}

TEST(ModelKeys, ComeFromTheCheckpointYaml) {
  std::vector<std::string> lines;
  for (const ModelKey& key : keys_of(tiny).keys) lines.push_back(key.name + ": " + key.value_name() + ". " + key.help);
  EXPECT_THAT(lines, ElementsAre("vae_path: path. The autoencoder.", "text_path: path. Both encoders.",
                                 "words_path: path. The vocabulary.", "variant: small|large. Which one.",
                                 "strength: number, 0 to 1.5. How much.", "causal: true|false. Whether.",
                                 "note: text. Anything."));
}

TEST(ModelKeys, MistakesOfAPluginAreNamed) {
  const std::string of = head + "settings:\n  x: ";
  const std::pair<std::string, std::string> rows[] = {
      {head + "  vae: {marker: b, config: vae_path}\n", "3:28: `vae_path` needs a `help`"},
      {head + "  vae: {marker: b, config: quantize, help: a}\n",
       "3:28: `model.quantize` is a key of the host, or of ai-toolkit: choose another"},
      {head + "  vae: {marker: b, config: dtype, help: a}\n", "3:28: `model.dtype` is a key of the host"},
      {head + "  vae: {marker: b, config: is_vae, help: a}\n", "3:28: `model.is_vae` is a key of the host"},
      {head + "  vae: {marker: b, config: Vae, help: a}\n", "3:28: `Vae` is no key: expected small letters"},
      {head + "  vae: {marker: b, help: a}\n", "3:26: help belongs to a `config` other than name_or_path"},
      {tiny + "  words_path: {text: true, help: a}\n", "13:3: `words_path` is there twice"},
      {of + "{help: a}\n", "4:6: setting `x` needs `help` and one of `one_of`, `number`, `flag`, `text`"},
      {of + "{text: true}\n", "4:6: setting `x` needs `help` and one of"},
      {of + "{text: true, flag: true, help: a}\n", "4:6: setting `x` needs `help` and one of"},
      {of + "{one_of: [], help: a}\n", "4:15: one_of must list at least one word"},
      {of + "{number: [1, 0], help: a}\n", "4:15: number must be [least, most]"},
      {of + "{number: [a, b], help: a}\n", "4:16: an item of number must be a number, found a"},
      {of + "{flag: false, help: a}\n", "4:13: write `flag: true`"},
      {of + "{choice: [a], help: a}\n", "4:7: unknown field `choice` in setting `x`. Known: one_of, "},
      {tiny + "arch:\n  a: {variant: medium}\n", "14:7: `variant: medium` is no setting of this model with this word"},
      {tiny + "arch:\n  a: {words_path: small}\n", "14:7: `words_path: small` is no setting of this model"},
      {tiny + "model_kwargs:\n  a: [variant]\n", "14:7: `variant` is no key of this model for a file"},
  };
  for (const auto& [yaml, text] : rows)
    EXPECT_THAT(error_of([&] { keys_of(yaml); }), StartsWith("plugin tiny: checkpoint YAML:" + text)) << yaml;
}

// What ai-toolkit calls the kind of model: its plugin, and what the name says beside the weights.
TEST(ModelKeys, NamesOfAiToolkitChooseThePluginAndItsSettings) {
  std::vector<PluginKeys> plugins = both();
  plugins[0].arch = {
      {"tiny", {}}, {"is_t", {}}, {"tiny:large", {{"variant", "large"}}}, {"is_large", {{"variant", "large"}}}};
  plugins[1].arch = {{"other", {}}};
  const auto read = [&](const std::string& model) {
    return parse_config("model: {name_or_path: m, " + model + "}\ndatasets: [{folder_path: d}]\n", "c.yaml",
                        {.plugins = &plugins});
  };
  struct Row {
    const char *model, *plugin, *variant;
  };
  const Row rows[] = {{"arch: tiny", "tiny", ""},
                      {"arch: tiny:large", "tiny", "large"},
                      {"arch: tiny:of_another_tag", "tiny", ""},
                      {"is_t: true", "tiny", ""},
                      {"is_t: true, is_large: true", "tiny", "large"},
                      {"is_t: false, arch: other", "other", ""},
                      {"is_anything: false", "", ""},
                      {"arch: tiny:large, variant: small", "tiny", "small"},
                      {"arch: null", "", ""}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.model);
    const Config config = read(row.model);
    EXPECT_EQ(config.plugin, row.plugin);
    const auto variant = config.model.given.find("variant");
    EXPECT_EQ(variant == config.model.given.end() ? "" : variant->second.text, row.variant);
  }
  // What else is wrong with the file is of no use then.
  EXPECT_EQ(
      error_of([&] { read("arch: huge:xl, model_kwargs: {a: 1}"); }),
      "c.yaml:1:32: model.arch: no plugin trains huge:xl; those that are here train other, tiny, tiny:large. Choose "
      "such a model, or name the plugin that has this one (plugin: FILE.so)");
  EXPECT_THAT(error_of([&] { read("is_huge: true"); }),
              StartsWith("c.yaml:1:35: model.is_huge: no plugin trains huge;"));
  const Config named =
      parse_config("plugin: mine\nmodel: {name_or_path: m, arch: huge}\ndatasets: [{folder_path: d}]\n", "c.yaml",
                   {.plugins = &plugins});
  EXPECT_EQ(named.plugin, "mine");
}

// A file of ai-toolkit's that the plugin names, and has no key for, is read past.
TEST(ModelKeys, FilesOfAiToolkitMayBeForNothingHere) {
  std::vector<PluginKeys> plugins = both();
  plugins[0].arch = {{"tiny", {}}};
  plugins[0].model_kwargs["other_path"] = {.is_file = true};
  const Config config = parse_config(
      "model: {name_or_path: m, arch: tiny, model_kwargs: {other_path: a}}\ndatasets: [{folder_path: d}]\n", "c.yaml",
      {.plugins = &plugins});
  EXPECT_EQ(config.model.name_or_path, "m");
  EXPECT_THAT(config.model.given, testing::IsEmpty());
}

// A dataset that is trained with its sound asks for that where the plugin has it, unless the user says otherwise.
TEST(ModelKeys, SoundOfADatasetIsASetting) {
  std::vector<PluginKeys> plugins = both();
  ModelConfig config;
  config.with_sound = true;
  EXPECT_THAT(read_given(config, "tiny", plugins).settings, testing::IsEmpty());
  plugins[0].keys.push_back({.name = "sound", .help = "With sound.", .kind = ModelKey::Kind::flag});
  EXPECT_THAT(read_given(config, "tiny", plugins).settings, ElementsAre(Pair("sound", "true")));
  config.given["sound"] = {"false"};
  EXPECT_THAT(read_given(config, "tiny", plugins).settings, ElementsAre(Pair("sound", "false")));
}

TEST(ModelKeys, ValuesAreSortedAndSpelled) {
  ::setenv("HOME", "/home/someone", 1);
  const std::map<std::string, GivenValue> given = {{"vae_path", {"~/v"}}, {"variant", {"large"}}, {"strength", {"+1"}},
                                                   {"causal", {"Yes"}},   {"note", {""}},         {"text_path", {""}}};
  const ModelValues values = read_given(config_with(given), "tiny", both());
  EXPECT_THAT(values.files, ElementsAre(Pair("vae_path", "/home/someone/v")));
  EXPECT_THAT(values.settings, ElementsAre(Pair("causal", "true"), Pair("strength", "1"), Pair("variant", "large")));
}

TEST(ModelKeys, MistakesOfAUserComeAtOnceWithTheirPlaces) {
  const Config config = parse_config(
      "model:\n  name_or_path: m\n  vae_pth: a\n  t5_path: b\n  variant: lage\n  strength: 2\n  causal: perhaps\n"
      "  zzzzzzzzz: 1\n  lr: 1\n  text_path: ${HOME}/x\n  max_sequence_lenght: 3\ndatasets: [{folder_path: d}]\n",
      "c.yaml");
  std::map<std::string, GivenValue> given = config.model.given;
  given["wordy"] = {.text = "x", .source = "--wordy"};
  EXPECT_EQ(error_of([&] { read_given(config_with(given), "tiny", both()); }),
            "--wordy: model.wordy: unknown key. Plugin tiny has vae_path, text_path, words_path, variant, strength, "
            "causal, note\n"
            "c.yaml:3:3: model.vae_pth: unknown key. Did you mean model.vae_path?\n"
            "c.yaml:4:3: model.t5_path: belongs to plugin other, this model is of plugin tiny. Remove it\n"
            "c.yaml:5:3: model.variant: must be small, large, found lage. Did you mean large?\n"
            "c.yaml:6:3: model.strength: must be 0 to 1.5, found 2\n"
            "c.yaml:7:3: model.causal: expected true or false, found perhaps\n"
            "c.yaml:8:3: model.zzzzzzzzz: unknown key. Plugin tiny has vae_path, text_path, words_path, variant, "
            "strength, causal, note\n"
            "c.yaml:9:3: model.lr: unknown key. Did you mean train.lr?\n"
            "c.yaml:10:3: model.text_path: environment variables are not expanded: write the path, found ${HOME}/x\n"
            "c.yaml:11:3: model.max_sequence_lenght: unknown key. Did you mean model.max_sequence_length?");
}

// With the plugins at hand, a key that none of them has is one of the mistakes of the file.
TEST(ModelKeys, UnknownOnesAreFoundWithTheOtherMistakesOfAFile) {
  const std::vector<PluginKeys> plugins = both();
  const auto error = [&](const std::string& model) {
    return error_of([&] {
      parse_config("model: {name_or_path: m, " + model + "}\ndatasets: [{folder_path: d}]\ntrain: {lrr: 1}\n", "c.yaml",
                   {.plugins = &plugins});
    });
  };
  const std::string other = "c.yaml:3:9: train.lrr: unknown key. Did you mean train.lr?";
  EXPECT_EQ(error("t5_pth: x"), "c.yaml:1:26: model.t5_pth: unknown key. Did you mean model.t5_path?\n" + other);
  EXPECT_EQ(error("zzzzzzz: x"),
            "c.yaml:1:26: model.zzzzzzz: unknown key: no plugin has it, and lora-host plugins "
            "--verbose lists what they have\n" +
                other);
  EXPECT_EQ(error("t5_path: [x]"), "c.yaml:1:35: model.t5_path: expected a single value, found a list\n" + other);
  EXPECT_EQ(error("t5_path: x"), other);
}

TEST(ModelKeys, ExtrasAreOfEveryPlugin) {
  const Config config =
      parse_config("model: {name_or_path: m, extras_name_or_path: extras}\ndatasets: [{folder_path: d}]\n", "c.yaml");
  EXPECT_THAT(read_given(config.model, "tiny", both()).files, ElementsAre(Pair("extras_name_or_path", "extras")));
  EXPECT_THAT(to_yaml(config), HasSubstr("extras_name_or_path: \"extras\""));
}

TEST(ModelKeys, HaveFlags) {
  EXPECT_EQ(flag_of("clip_g_path"), "--clip-g");
  EXPECT_EQ(flag_of("variant"), "--variant");
  std::vector<PluginKeys> plugins = both();
  plugins.push_back({"third", {{.name = "variant_path", .help = "A file."}, {.name = "seed", .help = "Hidden."}}});
  const auto flags = plugin_flags(plugins, [](const std::string& flag) { return flag == "--seed"; });
  EXPECT_EQ(flags.at("--text"), "text_path");
  EXPECT_EQ(flags.at("--variant"), "variant_path");  // of two, the file
  EXPECT_FALSE(flags.contains("--seed"));
  const std::string help = plugin_flags_help(plugins, flags);
  EXPECT_THAT(help, HasSubstr("Files and settings of plugin tiny:\n  --vae PATH                  The autoencoder.\n"));
  EXPECT_THAT(help, HasSubstr("Files and settings of plugin third:\n  --variant PATH              A file.\n\n"));
}

// The plugins that ship: variants are settings, and the host knows them.
TEST(ModelKeys, VariantsOfShippedModels) {
  const std::vector<PluginKeys> plugins = built_plugins().model_keys();
  const std::pair<const char*, const char*> rows[] = {{"flux", "must be dev, schnell, kontext, fill, found huge"},
                                                      {"sd35", "must be large, large-turbo, medium, sd3-medium, found"},
                                                      {"sdxl", "must be epsilon, v_pred, v_pred_ztsnr, found huge"}};
  for (const auto& [plugin, text] : rows)
    EXPECT_THAT(error_of([&] {
                  read_given(config_with({{"variant", {"huge"}}}), plugin, plugins);
                }),
                StartsWith(std::string("model.variant: ") + text));
}

TEST(ModelKeys, PluginsListThem) {
  const std::string text = run_host({"plugins", "--verbose"}).output;
  for (const char* line :
       {"\n  model      sd35\n",
        "\n      t5_path       (path) T5 text encoder, where the checkpoint has none. The model ",
        "\n      variant       (large|large-turbo|medium|sd3-medium) Needed for large-turbo",
        "\n      t5            model.t5_path, keys behind text_encoders.t5xxl.transformer., ",
        "; folder text_encoder_3\n", "\n      text          conditioner.text\n",
        "\n      size_ids      sizes: original_height, ", "\n      weight_decay  (number, at least 0, default 0.01) "})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(run_host({"plugins"}).output, testing::Not(HasSubstr("t5_path")));
}

TEST(ModelKeys, AModelIsOpenedWithThoseOfItsPlugin) {
  ModelConfig config;
  config.name_or_path = toy_folder() / "flux_toy.safetensors";
  config.given["clip_g_path"] = {.text = "x.safetensors", .source = "c.yaml", .line = 4, .column = 3};
  EXPECT_EQ(
      error_of([&] { Model(built_plugins(), config, ""); }),
      "c.yaml:4:3: model.clip_g_path: belongs to plugin hidream, sd35, sdxl, this model is of plugin flux. Remove it");
  config.given = {{"variant", {"dev"}}};
  EXPECT_THAT(error_of([&] { Model(built_plugins(), config, ""); }), HasSubstr("variant is dev, but the checkpoint"));
}

}  // namespace
}  // namespace lh::test::model_keys_test
