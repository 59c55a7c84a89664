// The command line: what each call means, and the answer to a wrong one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/options.h"
#include "core/error.h"
#include "support/io_files.h"

namespace lh::cli_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Options parse(std::vector<const char*> args) {
  args.insert(args.begin(), "lora-host");
  return parse_options(static_cast<int>(args.size()), args.data());
}

std::string error_of(const std::vector<const char*>& args) {
  try {
    parse(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::config);
    return error.what();
  }
  return "";
}

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    config_ = (folder_ / "c.yaml").string();
    model_ = (folder_ / "m.safetensors").string();
    std::ofstream(config_) << "name: dog\nmodel: {name_or_path: base}\n"
                              "datasets: [{folder_path: a, flip_x: true}, {folder_path: b}]\n"
                              "train: {steps: 5}\nsample: {prompts: [one]}\n";
    std::ofstream(model_) << "x";
  }

  const test::TempDir temp_;
  const std::filesystem::path folder_ = temp_.path();
  std::string config_, model_;
};

TEST_F(Cli, TrainIsTheDefaultCommand) {
  const Options options = parse({"--plugin", "p", "--config", config_.c_str()});
  EXPECT_EQ(options.command, "train");
  EXPECT_EQ(options.config.plugin, "p");
  EXPECT_EQ(options.config.name, "dog");
  EXPECT_EQ(options.config.train.steps, 5);
  EXPECT_EQ(options.resume, "");
  EXPECT_FALSE(options.dry_run);
  EXPECT_EQ(parse({"--plugin-dir", folder_.c_str(), "--config", config_.c_str()}).plugin_dirs.size(), 1u);
}

TEST_F(Cli, ShortFormNeedsNoFile) {
  const Options options =
      parse({"train",  "--model", model_.c_str(), "--dataset", "photos",       "--rank", "32",        "--alpha",
             "16",     "--steps", "1000",         "--lr",      "1e-4",         "--fp16", "--name",    "n",
             "--out",  "o",       "--resolution", "512,768",   "--batch-size", "2",      "--trigger", "[w]",
             "--seed", "7",       "--device",     "cpu",       "--dry-run"});
  const Config& config = options.config;
  EXPECT_EQ(config.model.name_or_path, model_);
  EXPECT_EQ(config.plugin, "");
  ASSERT_EQ(config.datasets.size(), 1u);
  EXPECT_EQ(config.datasets[0].folder_path, "photos");
  EXPECT_THAT(config.datasets[0].resolution, ElementsAre(512, 768));
  EXPECT_EQ(config.network.linear, 32);
  EXPECT_EQ(config.network.linear_alpha, 16);
  EXPECT_EQ(config.train.lr, 1e-4);
  EXPECT_EQ(config.train.dtype, "fp16");
  EXPECT_EQ(config.train.batch_size, 2);
  EXPECT_EQ(config.train.seed, 7);
  EXPECT_EQ(config.trigger_word, "[w]");
  EXPECT_EQ(config.output_dir(), "o/n");
  EXPECT_EQ(config.device, "cpu");
  EXPECT_TRUE(options.dry_run);
}

TEST_F(Cli, RateFollowsTheOptimizer) {
  const auto rate = [&](std::vector<const char*> more) {
    more.insert(more.begin(), {"train", "--config", config_.c_str()});
    return parse(more).config;
  };
  EXPECT_EQ(rate({}).train.lr, 1e-4);
  EXPECT_EQ(rate({"--optimizer", "prodigy"}).train.lr, 1);
  const Config low = rate({"--optimizer", "prodigy", "--lr", "1e-4"});
  EXPECT_EQ(low.train.lr, 1e-4);
  EXPECT_THAT(low.notes, ElementsAre(HasSubstr("lr 0.0001 is far below 1, which is usual for prodigy")));
}

TEST_F(Cli, FlagsOverrideTheFile) {
  const Options options = parse({"train", "--config", config_.c_str(), "--steps", "9", "--resolution", "256"});
  EXPECT_EQ(options.config.train.steps, 9);
  ASSERT_EQ(options.config.datasets.size(), 2u);
  EXPECT_THAT(options.config.datasets[1].resolution, ElementsAre(256));
  const Options replaced = parse({"--config", config_.c_str(), "--dataset", "x", "--dataset", "y", "--dataset", "z"});
  ASSERT_EQ(replaced.config.datasets.size(), 3u);
  EXPECT_EQ(replaced.config.datasets[2].folder_path, "z");
  EXPECT_TRUE(replaced.config.datasets[2].flip_x);
}

TEST_F(Cli, ModelIsAPathOrAPlugin) {
  const Options options = parse({"train", "--model", "arch", "--checkpoint", "w.safetensors", "--dataset", "d"});
  EXPECT_EQ(options.config.plugin, "arch");
  EXPECT_EQ(options.config.model.name_or_path, "w.safetensors");
  EXPECT_EQ(parse({"train", "--model", "arch", "--config", config_.c_str()}).config.model.name_or_path, "base");
  EXPECT_THAT(error_of({"train", "--model", "arch", "--dataset", "d"}),
              HasSubstr("name the weights with --checkpoint"));
  EXPECT_EQ(error_of({"train", "--model", "no/m.safetensors", "--dataset", "d"}),
            "--model: there is no no/m.safetensors");
  EXPECT_THAT(error_of({"train", "--model", model_.c_str(), "--checkpoint", "x", "--dataset", "d"}),
              HasSubstr("give one of them"));
}

TEST_F(Cli, ResumeTakesAnOptionalPath) {
  EXPECT_EQ(parse({"--config", config_.c_str(), "--resume"}).resume, "auto");
  EXPECT_EQ(parse({"--config", config_.c_str(), "--resume", "--dry-run"}).resume, "auto");
  EXPECT_EQ(parse({"--config", config_.c_str(), "--resume", "out/x"}).resume, "out/x");
}

TEST_F(Cli, SampleCollectsPromptsAndLoras) {
  const Options options = parse({"sample",
                                 "--model",
                                 model_.c_str(),
                                 "--vae",
                                 "v",
                                 "--clip",
                                 "c",
                                 "--t5",
                                 "t",
                                 "--prompt",
                                 "[trigger]",
                                 "--prompt",
                                 "a, b",
                                 "--lora",
                                 "x.safetensors:0.5",
                                 "--lora",
                                 "y.safetensors",
                                 "--lora",
                                 "d:/z",
                                 "--steps",
                                 "4",
                                 "--guidance",
                                 "3.5",
                                 "--seed",
                                 "1",
                                 "--width",
                                 "640",
                                 "--height",
                                 "480",
                                 "--sampler",
                                 "euler",
                                 "--out",
                                 "o.png"});
  EXPECT_EQ(options.command, "sample");
  EXPECT_THAT(options.config.sample.prompts, ElementsAre("[trigger]", "a, b"));
  ASSERT_EQ(options.loras.size(), 3u);
  EXPECT_EQ(options.loras[0].path, "x.safetensors");
  EXPECT_EQ(options.loras[0].strength, 0.5);
  EXPECT_EQ(options.loras[1].strength, 1);
  EXPECT_EQ(options.loras[2].path, "d:/z");
  EXPECT_EQ(options.config.sample.sample_steps, 4);
  EXPECT_EQ(options.config.sample.guidance_scale, 3.5);
  EXPECT_EQ(options.config.sample.width, 640);
  EXPECT_EQ(options.config.model.given.size(), 3u);
  EXPECT_EQ(options.config.model.given.at("t5_path").text, "t");
  EXPECT_EQ(options.output, "o.png");
  EXPECT_THAT(parse({"sample", "--config", config_.c_str()}).config.sample.prompts, ElementsAre("one"));
}

// Keys of plugins have flags, and the help of a command lists them.
TEST_F(Cli, AFileMayHaveAColonInItsName) {
  const std::string file = (folder_ / "style: oil.safetensors").string();
  std::ofstream(file) << "x";
  const Options options = parse({"sample", "--config", config_.c_str(), "--lora", file.c_str(), "--lora",
                                 (file + ":0.5").c_str(), "--out", "o.png"});
  ASSERT_EQ(options.loras.size(), 2u);
  EXPECT_EQ(options.loras[0].path, file);
  EXPECT_EQ(options.loras[0].strength, 1);
  EXPECT_EQ(options.loras[1].path, file);
  EXPECT_EQ(options.loras[1].strength, 0.5);
}

TEST_F(Cli, AFolderOfALoraIsAnsweredWithItsFiles) {
  const std::filesystem::path run = folder_ / "run", diffusers = folder_ / "adapter";
  const auto error = [&] {
    return error_of({"sample", "--config", config_.c_str(), "--lora", run.c_str(), "--prompt", "p"});
  };
  std::filesystem::create_directory(run);
  EXPECT_THAT(error(), HasSubstr("is a folder, expected a file. There is no .safetensors file in it"));
  for (const char* name : {"dog.safetensors", "dog_000000250.safetensors", "loss.png"})
    std::ofstream(run / name) << "x";
  EXPECT_THAT(error(), HasSubstr("is a folder, expected a file. Give one of those in it: dog.safetensors, "
                                 "dog_000000250.safetensors"));
  std::filesystem::create_directory(diffusers);
  std::ofstream(diffusers / "pytorch_lora_weights.safetensors") << "x";
  const Options options =
      parse({"sample", "--config", config_.c_str(), "--lora", (diffusers.string() + ":0.5").c_str()});
  EXPECT_EQ(options.loras.at(0).path, diffusers / "pytorch_lora_weights.safetensors");
  EXPECT_EQ(options.loras.at(0).strength, 0.5);
}

TEST_F(Cli, FilesAndSettingsOfPlugins) {
  const Options options = parse({"train", "--config", config_.c_str(), "--clip-g", "g", "--variant", "v_pred"});
  ASSERT_NE(options.registry, nullptr);
  EXPECT_EQ(options.config.model.given.at("clip_g_path").text, "g");
  EXPECT_EQ(options.config.model.given.at("clip_g_path").source, "--clip-g");
  EXPECT_EQ(options.config.model.given.at("variant").text, "v_pred");
  const std::string help = parse({"train", "--help"}).text,
                    of_sdxl = parse({"train", "--model", "sdxl", "--help"}).text;
  for (const char* line : {"Files and settings of models: --audio-vae, --byt5, --clip, --clip-g, ",
                           "with one of anima, auraflow, chroma, ernie_image, flux, "})
    EXPECT_THAT(help, HasSubstr(line));
  EXPECT_THAT(help, Not(HasSubstr("Second CLIP text")));
  for (const char* line : {"Files and settings of plugin sdxl:", "\n  --clip-g PATH               Second CLIP text",
                           "\n  --variant epsilon|v_pred|v_pred_ztsnr "})
    EXPECT_THAT(of_sdxl, HasSubstr(line));
  EXPECT_THAT(of_sdxl, Not(HasSubstr("plugin flux")));
  EXPECT_THAT(error_of({"train", "--config", config_.c_str(), "--varient", "g"}), HasSubstr("Did you mean --variant?"));
  EXPECT_THAT(error_of({"plugins", "--t5", "t"}), HasSubstr("unknown argument"));
  std::ofstream(config_, std::ios::app) << "trian: x\n";
  EXPECT_THAT(error_of({"--config", config_.c_str()}), HasSubstr("trian: unknown key. Did you mean train?"));
}

TEST_F(Cli, OtherCommands) {
  EXPECT_EQ(parse({"plugins", "--plugin-dir", "a", "--plugin-dir", "b"}).plugin_dirs.size(), 2u);
  EXPECT_EQ(parse({"inspect", "f"}).input, "f");
  const Options make = parse({"make-checkpoint", "--like", "k.json", "o", "--seed", "3"});
  EXPECT_EQ(make.input, "k.json");
  EXPECT_EQ(make.output, "o");
  EXPECT_EQ(make.seed, 3);
  const Options bench = parse({"bench", "--model", model_.c_str(), "--resolution", "1024"});
  EXPECT_EQ(bench.command, "bench");
  EXPECT_THAT(bench.config.datasets.at(0).resolution, ElementsAre(1024));
}

TEST_F(Cli, HelpAndVersionArePrinted) {
  EXPECT_EQ(parse({"--version"}).command, "print");
  EXPECT_THAT(version_text(), HasSubstr("plugin ABI"));
  for (const char* command : {"train", "sample", "plugins", "inspect", "verify", "merge", "convert", "extract",
                              "resize", "make-checkpoint", "bench"}) {
    const Options options = parse({command, "--help"});
    EXPECT_EQ(options.command, "print");
    EXPECT_THAT(options.text, HasSubstr("Examples:"));
    EXPECT_THAT(options.text, HasSubstr(std::string("Usage: lora-host ") + command));
  }
  EXPECT_THAT(parse({}).text, HasSubstr("Examples:"));
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("make-checkpoint"));
}

TEST_F(Cli, MistakesAreNamed) {
  EXPECT_EQ(error_of({"trian"}), "unknown command trian. Did you mean train?");
  EXPECT_EQ(error_of({config_.c_str()}),
            fmt::format("unknown command {0}. To train what it describes: --config {0}", config_));
  EXPECT_THAT(error_of({"train", config_.c_str()}), HasSubstr("Did you mean --config " + config_ + "?"));
  EXPECT_THAT(error_of({"train", "--model", model_.c_str(), "--dataset", "d", "--rnak", "3"}),
              HasSubstr("--rnak. Did you mean --rank?"));
  EXPECT_EQ(error_of({"train", "--model", model_.c_str(), "--dataset", "d", "--rank", "0", "--lr", "x"}),
            "--rank: must be 1 to 4096, found 0\n--lr: expected a number, found x");
  EXPECT_THAT(error_of({"train", "--model", model_.c_str()}), HasSubstr("no dataset: give --dataset DIR"));
  EXPECT_THAT(error_of({"train", "--dataset", "d"}), HasSubstr("no model"));
  EXPECT_THAT(error_of({"train", "--config", "/nowhere.yaml"}), HasSubstr("/nowhere.yaml: cannot be opened"));
  EXPECT_THAT(error_of({"sample", "--model", model_.c_str()}), HasSubstr("no prompt"));
  EXPECT_THAT(error_of({"sample", "--model", model_.c_str(), "--prompt", "p", "--lora", "x:y"}), HasSubstr("strength"));
  EXPECT_THAT(error_of({"train", "--config", config_.c_str(), "--fp16", "--bf16"}), HasSubstr("exclude each other"));
  EXPECT_THAT(error_of({"inspect"}), HasSubstr("file is required"));
  EXPECT_THAT(error_of({"make-checkpoint", "--like", "k", "o", "--seed", "-1"}), HasSubstr("at least 0"));
  EXPECT_NE(error_of({"train", "--steps"}), "");
}

}  // namespace
}  // namespace lh::cli_test
