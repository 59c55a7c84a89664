// Configuration files: what is accepted and what each mistake is answered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>

#include "config/load.h"
#include "config/print.h"
#include "config/schema.h"
#include "core/error.h"
#include "support/paths.h"

namespace lh::config_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string minimal = "model: {name_or_path: m.safetensors}\ndatasets: [{folder_path: photos}]\n";

std::string error_of(const std::string& text, ConfigNeeds needs = {}) {
  spdlog::set_level(spdlog::level::warn);  // keys without effect are not what is tested
  try {
    parse_config(text, "c.yaml", needs);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::config);
    return error.what();
  }
  return "";
}

std::string read_file(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(Config, MinimalFileHasTheDocumentedDefaults) {
  const Config config = parse_config(minimal, "c.yaml");
  EXPECT_EQ(config.model.name_or_path, "m.safetensors");
  ASSERT_EQ(config.datasets.size(), 1u);
  EXPECT_EQ(config.datasets[0].folder_path, "photos");
  EXPECT_THAT(config.datasets[0].resolution, ElementsAre(512));
  EXPECT_EQ(config.train.steps, 1000);
  EXPECT_FALSE(config.network.linear_alpha.has_value());
  EXPECT_TRUE(config.model.given.empty());
}

// A file as ai-toolkit ships them, less what is not supported.
constexpr const char* ai_toolkit = R"(---
job: extension
config:
  # this name will be the folder and filename name
  name: "my_first_lora_v1"
  process:
    - type: 'sd_trainer'
      training_folder: "output"
      performance_log_every: 1000
      device: cuda:0
#      trigger_word: "p3r5on"
      network:
        type: "lora"
        linear: 32
        linear_alpha: 16
        network_kwargs:
          only_if_contains:
            - "blocks.7."
            - "blocks.8."
      save:
        dtype: float16 # precision to save
        save_every: 250
        max_step_saves_to_keep: 4
        push_to_hub: false
      datasets:
        - folder_path: "/path/to/images/folder"
          caption_ext: "txt"
          caption_dropout_rate: 0.05
          shuffle_tokens: false
          cache_latents_to_disk: true
          resolution: [ 512, 768, 1024 ]
        - dataset_path: second
          caption_ext: .caption
          resolution: 768
      train:
        batch_size: 1
        steps: 2000
        gradient_accumulation: 2
        train_unet: true
        train_text_encoder: false
        gradient_checkpointing: true
        noise_scheduler: "flowmatch"
        optimizer: "adamw8bit"
        optimizer_params:
          betas: [0.9, 0.99]
          weight_decay: 1e-2
          decouple: true
        lr: 1e-4
        skip_first_sample: false
        ema_config:
          use_ema: true
          ema_decay: 0.99
          use_feedback: false
          param_multiplier: 1.0
        dtype: bf16
      model:
        name_or_path: "~/models/base"
        is_anything: true
        quantize: false
      sample:
        sampler: "flowmatch"
        sample_every: 250
        width: 1024
        height: 1024
        prompts:
          - "[trigger] holding a sign that says 'I LOVE PROMPTS!'"
          - "woman with red hair: playing chess"
        neg: ""
        seed: 42
        walk_seed: true
        guidance_scale: 4
        sample_steps: 20
meta:
  name: "[name]"
  version: '1.0'
)";

TEST(Config, AcceptsAnAiToolkitFile) {
  ::setenv("HOME", "/home/someone", 1);
  const Config config = parse_config(ai_toolkit, "c.yaml");
  EXPECT_EQ(config.name, "my_first_lora_v1");
  EXPECT_EQ(config.output_dir(), "output/my_first_lora_v1");
  EXPECT_EQ(config.device, "cuda");
  EXPECT_EQ(config.network.linear, 32);
  EXPECT_FALSE(config.network.linear_alpha);  // the rank, as there for flow matching
  EXPECT_THAT(config.network.only_if_contains, ElementsAre("blocks.7.", "blocks.8."));
  EXPECT_EQ(config.save.dtype, "float16");
  ASSERT_EQ(config.datasets.size(), 2u);
  EXPECT_THAT(config.datasets[0].resolution, ElementsAre(512, 768, 1024));
  EXPECT_DOUBLE_EQ(config.datasets[0].caption_dropout_rate, 0.05);
  EXPECT_EQ(config.datasets[1].folder_path, "second");
  EXPECT_EQ(config.datasets[1].caption_ext, "caption");
  EXPECT_THAT(config.datasets[1].resolution, ElementsAre(768));
  EXPECT_EQ(config.train.gradient_accumulation, 2);
  EXPECT_EQ(config.train.gradient_checkpointing, "true");
  EXPECT_EQ(config.train.optimizer_params.at("betas").value.items.at(1).text, "0.99");
  EXPECT_EQ(config.train.optimizer_params.at("weight_decay").value.text, "1e-2");
  EXPECT_EQ(config.train.optimizer_params.at("decouple").value.text, "true");
  EXPECT_TRUE(config.train.ema_config.use_ema);
  EXPECT_EQ(config.train.ema_config.ema_decay, 0.99);
  EXPECT_EQ(config.train.dtype, "bf16");
  EXPECT_EQ(config.model.name_or_path, "/home/someone/models/base");
  EXPECT_EQ(config.sample.sampler, "");
  EXPECT_TRUE(config.sample.sample_at_start);
  EXPECT_TRUE(config.sample.walk_seed);
  EXPECT_EQ(config.sample.guidance_scale, 4.0);
  EXPECT_EQ(config.sample.prompts.size(), 2u);
}

TEST(Config, DisableSamplingWins) {
  const Config config = parse_config(
      minimal + "train: {disable_sampling: true, skip_first_sample: false}\nsample: {sample_every: 10}\n", "c.yaml");
  EXPECT_EQ(config.sample.sample_every, 0);
  EXPECT_FALSE(config.sample.sample_at_start);
}

struct Mistake {
  const char* text;  // appended to the minimal file, so it starts in line 3
  const char* error;
};

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreAnsweredWithPlaceKeyAndFix) {
  EXPECT_THAT(error_of(minimal + GetParam().text), testing::StartsWith(GetParam().error));  // yaml-cpp 0.8 adds names
}

INSTANTIATE_TEST_SUITE_P(
    Table, Mistakes,
    testing::Values(
        Mistake{"train:\n  lrr: 1e-4\n", "c.yaml:4:3: train.lrr: unknown key. Did you mean train.lr?"},
        Mistake{"trian: {lr: 1}\n", "c.yaml:3:1: trian: unknown key. Did you mean train?"},
        Mistake{"lr: 1\n", "c.yaml:3:1: lr: unknown key. Did you mean train.lr?"},
        Mistake{"train: {resolution: 1}\n",
                "c.yaml:3:9: train.resolution: unknown key. Did you mean datasets[].resolution?"},
        Mistake{"zzzzzzzz: 1\n", "c.yaml:3:1: zzzzzzzz: unknown key"},
        Mistake{"train: {weight_decay: 0.1}\n",
                "c.yaml:3:9: train.weight_decay: unknown key; here it is train.optimizer_params.weight_decay"},
        Mistake{"network: {dim: 8}\n", "c.yaml:3:11: network.dim: unknown key; here it is network.linear"},
        Mistake{"train: {steps: many}\n", "c.yaml:3:16: train.steps: expected an integer, found many"},
        Mistake{"train: {steps: \"10\"}\n", "c.yaml:3:16: train.steps: expected an integer, found the text \"10\""},
        Mistake{"train: {steps: 1.5}\n", "c.yaml:3:16: train.steps: expected an integer, found 1.5"},
        Mistake{"train: {steps: 99999999999999999999}\n",
                "c.yaml:3:16: train.steps: expected an integer, found 99999999999999999999"},
        Mistake{"train:\n  steps:\n  seed: 1\n", "c.yaml:4:3: train.steps: expected an integer, found nothing"},
        Mistake{"train: {lr: [1]}\n", "c.yaml:3:13: train.lr: expected a number, found a list"},
        Mistake{"train: {lr: .nan}\n", "c.yaml:3:13: train.lr: expected a number, found .nan"},
        Mistake{"train: {lr: nan}\n", "c.yaml:3:13: train.lr: expected a number, found nan"},
        Mistake{"train: {lr: 0}\n", "c.yaml:3:13: train.lr: must be more than 0 and at most 100, found 0"},
        Mistake{"network: {linear: 0}\n", "c.yaml:3:19: network.linear: must be 1 to 4096, found 0"},
        Mistake{"network: {dropout: 1}\n", "c.yaml:3:20: network.dropout: must be at least 0 and less than 1, found 1"},
        Mistake{"train: {max_grad_norm: -1}\n", "c.yaml:3:24: train.max_grad_norm: must be at least 0, found -1"},
        Mistake{"sample: {walk_seed: maybe}\n", "c.yaml:3:21: sample.walk_seed: expected true or false, found maybe"},
        Mistake{"sample: {prompts: {a: b}}\n",
                "c.yaml:3:19: sample.prompts: expected a mapping with the text `prompt`"},
        Mistake{"train: 5\n", "c.yaml:3:8: train: expected a mapping, found 5"},
        Mistake{"train: {dtype: bf61}\n",
                "c.yaml:3:16: train.dtype: must be bf16, fp16, fp32, found bf61. Did you mean bf16?"},
        Mistake{"train: {timestep_type: next_sample}\n",
                "c.yaml:3:24: train.timestep_type: must be sigmoid, linear, linear_shift, weighted, shift, flux_shift, "
                "linear_flux_shift, logit_normal, mode, cosmap, one_step, two_step, four_step, eight_step, "
                "lognorm_blend, found next_sample"},
        Mistake{"train: {lr_scheduler_params: {warmup_step: 5}}\n",
                "c.yaml:3:31: train.lr_scheduler_params: unknown key warmup_step. Did you mean warmup_steps?"},
        Mistake{"train: {optimizer_params: {betas: {first: 0.9}}}\n",
                "c.yaml:3:35: train.optimizer_params: betas: expected a value or a list, found a mapping"},
        Mistake{"device: gpu\n", "c.yaml:3:9: device: must be cpu, cuda or cuda:N, found gpu"},
        Mistake{"train: {steps: \"1\\n\\e[2J\"}\n",
                "c.yaml:3:16: train.steps: expected an integer, found the text \"1\\n\\x1b[2J\""},
        Mistake{"train: {steps: \""
                "1234567890123456789012345678901234567890123456789012345\xC3\xA4\xC3\xA4\xC3\xA4"
                "\"}\n",
                "c.yaml:3:16: train.steps: expected an integer, found the text "
                "\"1234567890123456789012345678901234567890123456789012345\xC3\xA4...\""},
        Mistake{"name: a/b\n", "c.yaml:3:7: name: must be a file name without slashes, found a/b"},
        Mistake{
            "training_folder: ${HOME}/x\n",
            "c.yaml:3:18: training_folder: environment variables are not expanded: write the path, found ${HOME}/x"},
        Mistake{"device: cpu\ndevice: cuda\n", "c.yaml:4:1: device: set twice, first in line 3"},
        Mistake{"train: {lr: 1e-4, lr: 1e-3}\n", "c.yaml:3:19: lr: set twice, first in line 3"},
        Mistake{"network: {rank: 4, linear: 8}\n",
                "c.yaml:3:20: network.linear: the same setting as network.rank in line 3: keep one of them"},
        Mistake{"train: {ema_config: {use_ema: maybe}}\n",
                "c.yaml:3:31: train.ema_config.use_ema: expected true or false, found maybe"},
        Mistake{"train: {ema_config: {ema_decay: 1}}\n",
                "c.yaml:3:33: train.ema_config.ema_decay: must be at least 0 and less than 1, found 1"},
        Mistake{"train: {ema_config: {ema_decay: .nan}}\n",
                "c.yaml:3:33: train.ema_config.ema_decay: expected a number, found .nan"},
        Mistake{"train: {ema_config: {warmup: linear}}\n",
                "c.yaml:3:30: train.ema_config.warmup: must be none, num_updates, diffusers, power, found linear"},
        Mistake{"train: {ema_config: {update_after_step: -1}}\n",
                "c.yaml:3:41: train.ema_config.update_after_step: must be 0 to 1000000000, found -1"},
        Mistake{"train: {ema_config: {inv_gamma: 0}}\n",
                "c.yaml:3:33: train.ema_config.inv_gamma: must be more than 0, found 0"},
        Mistake{"train: {ema_config: {ema_deca: 0.99}}\n",
                "c.yaml:3:22: train.ema_config.ema_deca: unknown key. Did you mean train.ema_config.ema_decay?"},
        Mistake{"train: {ema_config: true}\n", "c.yaml:3:21: train.ema_config: expected a mapping, found true"},
        Mistake{"train: {ema_config: {use_ema_warmup: true}}\n",
                "c.yaml:3:22: train.ema_config.use_ema_warmup: not supported: use warmup: power"},
        Mistake{"train: {ema_config: {use_feedback: true}}\n",
                "c.yaml:3:22: train.ema_config.use_feedback: not supported: the average does not act on the weights; "
                "remove it"},
        Mistake{"train: {train_unet: false}\n",
                "c.yaml:3:9: train.train_unet: not supported: without it nothing would be trained; remove it"},
        Mistake{
            "logging: {use_wandb: true}\n",
            "c.yaml:3:11: logging.use_wandb: not supported: nothing is sent over the network; events are written to "
            "training_folder/name"},
        Mistake{"name: &a x\n", "c.yaml:3:7: anchors (&name) are not allowed: write the value out"},
        Mistake{"name: *a\n", "c.yaml:3:7: not YAML: the referenced anchor is not defined"},
        Mistake{"name: !!python/object:os.system x\n",
                "c.yaml:3:7: tags are not allowed, found tag:yaml.org,2002:python/object:os.system"},
        Mistake{"---\nname: x\n", "c.yaml:3:1: a second document starts here, expected one"},
        Mistake{"{a: b}: c\n", "c.yaml:3:1: a key must be a word, found a list or mapping"},
        Mistake{"train: {LR: 1}\n", "c.yaml:3:9: train.LR: unknown key. Did you mean train.lr?"},
        Mistake{"name: \"a\\nb\"\n", "c.yaml:3:7: name: must be a file name without control characters"},
        Mistake{"name: \"  \"\n", "c.yaml:3:7: name: must be a file name without control characters"},
        Mistake{"training_folder: \"a\\0b\"\n",
                "c.yaml:3:18: training_folder: must be a path without line breaks and control characters"},
        Mistake{"train: {lr: 1\n", "c.yaml:4:1: not YAML: end of map flow not found. A { is not closed"},
        Mistake{"train:\n  lr:1e-4\n  steps: 2\n", "c.yaml:5:8: not YAML: illegal map value. A text with"},
        Mistake{"train:\n\tlr: 1e-4\n", "c.yaml:4:4: not YAML: illegal map value. Indent with spaces, not with tabs"},
        Mistake{"sample:\n  prompts:\n    - [trigger] on a hill\n",
                "c.yaml:5:17: not YAML: end of sequence not found. Entries of one list are indented alike, and a text "
                "that begins with [ or { needs quotes"},
        Mistake{"name: \"C:\\xy\"\n", "c.yaml:3:14: not YAML: bad character found while scanning hex number. A \\ in"},
        Mistake{"name: \"a\001\"\n", "c.yaml:3:9: control character 0x01 in the text"},
        Mistake{"name: \"\xC3\"\n", "c.yaml:3:8: not UTF-8 text"}));

// The text of a quote that is never closed would be the rest of the file, whose keys would be lost.
TEST(Config, AQuoteThatIsNotClosedIsNamed) {
  const auto open = [](const std::string& more) { return error_of(minimal + more); };
  EXPECT_EQ(open("trigger_word: \"sks dog\nname: x\n"),
            "c.yaml:3:15: not YAML: the quote that begins here is not closed");
  EXPECT_EQ(open("trigger_word: 'sks dog\nname: x"), "c.yaml:3:15: not YAML: the quote that begins here is not closed");
  EXPECT_EQ(open("trigger_word: sks\nname: \"x\n"), "c.yaml:4:7: not YAML: the quote that begins here is not closed");
  EXPECT_EQ(open("trigger_word: \"don't\nname: it's 'x'\n\n"),
            "c.yaml:3:15: not YAML: the quote that begins here is not closed");
  EXPECT_EQ(open("name: x # \"don't\ntrigger_word: it's 3\" wide\n"), "");
  EXPECT_EQ(open("trigger_word: |\n  \"don't\n"), "");
  EXPECT_EQ(parse_config(minimal + "trigger_word: |\n  a\n\n", "c.yaml").trigger_word, "a\n");
  EXPECT_EQ(parse_config(minimal + "trigger_word: \"a\n  b\"\n", "c.yaml").trigger_word, "a b");
  EXPECT_NE(open("trigger_word: \"a" + std::string(500, '\'') + "\n"), "") << "with a place or without";
}

TEST(Config, AnEmptyFolderCountsAsNotSet) {
  EXPECT_EQ(parse_config(minimal + "training_folder: ''\n", "c.yaml").training_folder, "output");
}

TEST(Config, ListsEveryProblemInTheOrderOfTheFile) {
  EXPECT_EQ(
      error_of("train: {lrr: 1, steps: 0}\nmodel: {model_kwargs: {a: 1}}\ndatasets: [{resolution: 1}, 5]\n"),
      "c.yaml:1:9: train.lrr: unknown key. Did you mean train.lr?\n"
      "c.yaml:1:24: train.steps: must be 1 to 1000000000, found 0\n"
      "c.yaml:2:1: model.name_or_path: missing. Checkpoint file or diffusers directory.\n"
      "c.yaml:2:23: model.model_kwargs: not supported: give settings of the model by their own keys: lora-host plugins "
      "--verbose lists them\n"
      "c.yaml:3:12: datasets[0].folder_path: missing. Folder of images, each with its caption beside it.\n"
      "c.yaml:3:25: datasets[0].resolution: must be 32 to 16384, found 1\n"
      "c.yaml:3:29: datasets[1]: expected a mapping, found 5");
}

// A file that is no configuration takes no longer to refuse than to read.
TEST(Config, ManyUnknownKeysAreRefusedAtOnce) {
  std::string text;
  for (int i = 0; text.size() < (1 << 20) - 32; ++i) text += fmt::format("k{}: {}\n", i, i);
  const std::clock_t begin = std::clock();  // the processor's: the machine may be busy
  const std::string error = error_of(text);
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
  EXPECT_THAT(error, StartsWith("c.yaml:1:1: k0: unknown key"));
  EXPECT_THAT(error, HasSubstr("c.yaml: and perhaps more: correct these first"));
}

TEST(Config, NamesWhatIsMissing) {
  const std::string none = error_of("");
  EXPECT_THAT(none, HasSubstr("model.name_or_path: missing"));
  EXPECT_THAT(none, HasSubstr("datasets: missing. Expected a list"));
  EXPECT_EQ(error_of("", {.model = false, .datasets = false}), "");
  EXPECT_THAT(error_of("model: {name_or_path: }\ndatasets: []\n"),
              testing::AllOf(HasSubstr("1:9: model.name_or_path: is empty"),
                             HasSubstr("2:11: datasets: expected at least one dataset")));
}

TEST(Config, WrapperMistakes) {
  EXPECT_EQ(error_of("job: extract\nconfig: {process: [{model: {name_or_path: m}, datasets: [{folder_path: d}]}]}\n"),
            "c.yaml:1:6: job: must be extension or train, found extract. For a LoRA of what a tuned model has more: "
            "lora-host extract");
  EXPECT_THAT(error_of("job: extension\nconfig: {process: []}\n"),
              HasSubstr("config.process: expected a list of one mapping"));
  EXPECT_THAT(error_of("job: extension\n"), HasSubstr("config: missing"));
  EXPECT_THAT(error_of("config:\n  process: [{type: image_reference_slider_trainer}]\n"),
              HasSubstr("2:20: type: this process is not for training a LoRA of images"));
  EXPECT_THAT(error_of("config:\n  process: [{type: concept_slider}]\n"),
              HasSubstr("2:20: type: concept_slider trains the way between two prompts. Set slider.positive_prompt and "
                        "slider.negative_prompt"));
  EXPECT_THAT(error_of("- a\n"), StartsWith("c.yaml:1:1: expected a mapping of keys, found a list"));
}

TEST(Config, RefusesBombsEarly) {
  EXPECT_EQ(error_of(std::string((1 << 20) + 1, ' ')), "c.yaml:1:1: 1048577 bytes, expected at most 1048576");
  EXPECT_NE(error_of(std::string(1000000, '[')), "");
  EXPECT_THAT(error_of("a:\n  " + std::string(50, '[') + std::string(50, ']')),
              HasSubstr("nested deeper than 32 levels"));
  std::string dashes;
  for (int i = 0; i < 200000; ++i) dashes += "- ";
  EXPECT_THAT(error_of(dashes), HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(error_of("a: &x [*x, *x]\n"), HasSubstr("anchors"));
  EXPECT_THAT(error_of(std::string("a: b\0c", 6)), HasSubstr("control character 0x00"));
}

// Damaged files are answered with lh::Error or read; anything else ends the test.
TEST(Config, SurvivesDamagedFiles) {
  const std::string text = ai_toolkit, pieces = "\n :-[]{},&*!|>'\"#%@`?~0.x\t\xC3";
  uint64_t state = 1;
  const auto random = [&](size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % below;
  };
  for (int round = 0; round < 400; ++round) {
    std::string damaged = text;
    for (size_t changes = 1 + random(4); changes; --changes) {
      const size_t at = random(damaged.size());
      const size_t kind = random(3);
      if (kind == 0) damaged[at] = pieces[random(pieces.size())];
      if (kind == 1) damaged.insert(at, 1 + random(40), pieces[random(pieces.size())]);
      if (kind == 2) damaged.erase(at, 1 + random(30));
    }
    error_of(damaged);
  }
}

TEST(Config, MissingFileAndDirectoryAreNamed) {
  EXPECT_THROW(load_config("/nowhere/c.yaml"), Error);
  try {
    load_config("/");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/: expected a file, found a directory");
  }
}

TEST(Config, EffectiveConfigurationReadsBackTheSame) {
  Config config = parse_config(ai_toolkit, "c.yaml");
  config.trigger_word = "a \"quoted\" \\ word\nwith: lines\t# and no comment";
  config.train.lr = 0.1 + 0.2;
  config.train.timestep_shift = 3.1582;
  config.train.lr_scheduler_params = {{"warmup_steps", 10}, {"lr_end", 1e-7}};
  config.train.ema_config = {.use_ema = true, .warmup = "power", .power = 0.75};
  config.model.given = {{"vae_path", {"v.safetensors"}}, {"variant", {"1"}}, {"t5_path", {}}};
  config.sample.prompts = {"yes", "1", "[a, b]", "null", "ä"};
  config.notes.clear();  // comments, which are not read back
  const std::string printed = to_yaml(config);
  const Config again = parse_config(printed, "printed.yaml");
  EXPECT_EQ(to_yaml(again), printed);
  EXPECT_EQ(again.trigger_word, config.trigger_word);
  EXPECT_EQ(again.train.lr, config.train.lr);
  EXPECT_THAT(printed, HasSubstr("\n  ema_config:\n    use_ema: true\n    ema_decay: 0.999\n    warmup: \"power\"\n"));
  EXPECT_EQ(again.train.ema_config.power, 0.75);
  EXPECT_EQ(again.sample.prompts, config.sample.prompts);
  EXPECT_EQ(again.model.given.at("vae_path").text, "v.safetensors");
  EXPECT_EQ(again.model.given.at("variant").text, "1");
  EXPECT_FALSE(again.model.given.contains("t5_path"));
  const GivenOption& betas = again.train.optimizer_params.at("betas");
  EXPECT_EQ(betas.value.items.at(1).text, config.train.optimizer_params.at("betas").value.items.at(1).text);
  EXPECT_EQ(betas.source, "printed.yaml");
  EXPECT_EQ(again.datasets.size(), 2u);
}

TEST(Config, DefaultsOfTheSchemaAreInsideItsOwnLimits) {
  EXPECT_EQ(error_of(to_yaml(parse_config(minimal, "c.yaml"))), "");
}

// docs/config.md holds the reference between two marker lines; LORA_UPDATE_DOCS=1 rewrites it.
TEST(Config, DocumentationIsUpToDate) {
  const std::string path = std::string(test::source_dir()) + "/docs/config.md", begin = "<!-- keys -->\n",
                    end = "<!-- end of keys -->\n";
  std::string text = read_file(path);
  const size_t from = text.find(begin), to = text.find(end);
  ASSERT_NE(from, text.npos);
  ASSERT_NE(to, text.npos);
  const std::string reference = "\n" + config_reference() + "\n";
  if (std::getenv("LORA_UPDATE_DOCS"))
    std::ofstream(path) << text.substr(0, from) << begin << reference << text.substr(to);
  else
    EXPECT_EQ(text.substr(from + begin.size(), to - from - begin.size()), reference)
        << "run lora_tests with LORA_UPDATE_DOCS=1";
}

TEST(Schema, EveryAliasLeadsToAKeyAndNoPathHasTwoMeanings) {
  std::vector<std::string_view> paths;
  for (const auto& row : schema::keys()) paths.push_back(row.path);
  for (const auto& row : schema::aliases()) {
    EXPECT_NE(schema::find(row.key), nullptr) << row.key;
    paths.push_back(row.path);
  }
  for (const auto& row : schema::ignored()) paths.push_back(row.path);
  for (const auto& row : schema::refused()) paths.push_back(row.path);
  for (const auto& row : schema::switches()) paths.push_back(row.path);
  std::ranges::sort(paths);
  const auto twice = std::ranges::adjacent_find(paths);
  EXPECT_EQ(twice, paths.end()) << *twice;
}

// What is shipped as a start for users is accepted as it is.
TEST(Config, ExamplesAreAccepted) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(test::source_dir()) + "/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    EXPECT_NO_THROW(load_config(entry.path(), {}));
    ++count;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace lh::config_test
