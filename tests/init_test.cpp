// lora-host init: what it writes is read again, passes --dry-run, and means what it was made of.
#include <gmock/gmock.h>

#include "cli/starting_point.h"
#include "config/load.h"
#include "config/print.h"
#include "data/video.h"
#include "support/image_files.h"
#include "support/ltx2_shapes.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/video_files.h"

namespace lh::test::init_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const fs::path root = source_dir();
const fs::path photos = root / "examples" / "demo" / "photos";

TEST(StartingPoint, ResolutionsAreThoseThatTheImagesHave) {
  for (const auto& [side, expected] : {std::pair<int64_t, std::vector<int64_t>>{4000, {512, 768, 1024}},
                                       {1024, {512, 768, 1024}},
                                       {1000, {512, 768}},
                                       {512, {512}},
                                       {511, {448}},
                                       {130, {128}},
                                       {10, {64}}})
    EXPECT_EQ(resolutions_for({.images = 1, .captioned = 1, .side = side}), expected) << side;
}

TEST(StartingPoint, StepsAndRankFollowFromPurposeAndImages) {
  struct Row {
    const char* purpose;
    int64_t images, steps, rank;
  };
  for (const Row& row : {Row{"subject", 1, 600, 16},
                         {"subject", 15, 1500, 16},
                         {"subject", 1000, 3000, 16},
                         {"style", 5, 1200, 32},
                         {"style", 40, 2400, 32},
                         {"concept", 20, 1600, 16}}) {
    Config config;
    config.datasets.resize(1);
    KeyComments comments;
    begin_with(*purpose_of(row.purpose), {.images = row.images, .captioned = row.images, .side = 512}, config,
               comments);
    EXPECT_EQ(config.train.steps, row.steps) << row.purpose << row.images;
    EXPECT_EQ(config.network.linear, row.rank);
    EXPECT_EQ(config.datasets[0].missing_captions, "error");
    EXPECT_EQ(config.save.save_every % 50, 0);
  }
  EXPECT_FALSE(purpose_of("object"));
}

TEST(StartingPoint, LooksAtTheImages) {
  const TempFolder folder("init");
  write_file(folder / "a.png", encode_png(test_picture(40, 90)));
  write_file(folder / "b.png", encode_png(test_picture(300, 100)));
  write_file(folder / "c.png", FileBytes(9, std::byte{1}));
  write_text(folder / "b.txt", "b");
  DatasetConfig dataset;
  dataset.folder_path = folder.path();
  const DataLook look = look_at_data(dataset);
  EXPECT_EQ(look.images, 2);  // that can be read
  EXPECT_EQ(look.captioned, 1);
  EXPECT_EQ(look.side, 173);  // of 300 x 100: the later of two in the middle
  dataset.folder_path = "/nowhere";
  EXPECT_THAT(error_of([&] { look_at_data(dataset); }), HasSubstr("there is no such folder"));
}

// Captions as kohya's scripts name them are captions, not the lack of them.
TEST(StartingPoint, FindsCaptionsOfOtherExtensions) {
  const TempFolder folder("init");
  write_file(folder / "a.png", encode_png(test_picture(40, 90)));
  write_text(folder / "a.caption", "a");
  Config config;
  config.datasets.emplace_back().folder_path = folder.path();
  const DataLook look = look_at_data(config.datasets[0]);
  EXPECT_EQ(look.captioned, 1);
  KeyComments comments;
  begin_with(LoraPurpose::subject, look, config, comments);
  EXPECT_EQ(config.datasets[0].caption_ext, "caption");
  EXPECT_EQ(config.datasets[0].missing_captions, "error");
}

// A folder of videos alone: clips as long as the shortest one allows.
TEST(StartingPoint, LooksAtVideos) {
  if (!reads_videos()) GTEST_SKIP() << "no FFmpeg: " << why_no_videos();
  const TempDir dir;
  write_file(dir / "a.avi", avi(film(12)));
  write_file(dir / "b.avi", avi(film(40)));
  put(dir / "a.txt", "a film");
  Config config;
  config.datasets.emplace_back().folder_path = dir.path();
  const DataLook look = look_at_data(config.datasets[0]);
  EXPECT_EQ(look.images, 2);
  EXPECT_EQ(look.captioned, 1);
  EXPECT_EQ(look.frames, 12);
  EXPECT_EQ(look.side, 55);  // 64 x 48
  KeyComments comments;
  begin_with(LoraPurpose::subject, look, config, comments);
  EXPECT_EQ(config.datasets[0].num_frames, 9);
  EXPECT_EQ(config.sample.num_frames, 9);
  EXPECT_EQ(comments.at("datasets[].folder_path"), "2 videos; lora-host check looks at them");
  config.datasets[0].num_frames = 5;  // the user's word
  begin_with(LoraPurpose::subject, look, config, comments);
  EXPECT_EQ(config.datasets[0].num_frames, 5);
  write_png(dir / "c.png", test_picture(64, 64));
  EXPECT_EQ(look_at_data({.folder_path = dir.path()}).frames, 0);
}

TEST(ToYaml, WithCommentsHasWhatDiffersAndWhatIsCommented) {
  Config config = parse_config(
      "model: {name_or_path: m, vae_path: v}\ntrain: {lr: 2e-4, ema_config: {use_ema: true}}\n"
      "datasets: [{folder_path: a}, {folder_path: b, flip_x: true}]\n",
      "x.yaml");
  const std::string text = to_yaml(config, {{"train.steps", "a\nlong while"}, {"model.vae_path", "another one: w"}});
  EXPECT_THAT(text,
              AllOf(HasSubstr("  steps: 1000  # a long while\n"), HasSubstr("  vae_path: \"v\"  # another one: w\n"),
                    HasSubstr("  ema_config:\n    use_ema: true\n"), HasSubstr("  - folder_path: \"a\"\n"),
                    Not(HasSubstr("lr_scheduler")), Not(HasSubstr("save:"))));
  EXPECT_EQ(to_yaml(parse_config(text, "y.yaml")), to_yaml(config));
}

class Init : public testing::Test {
 protected:
  std::string out() const { return (dir_ / "train.yaml").string(); }
  HostResult init(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "init");
    arguments.insert(arguments.end(), {"--out", out()});
    return run_host(arguments);
  }
  TempDir dir_;
};

// A model that its weights do not tell, and that is shown a reference for each image.
TEST_F(Init, ReferencesAreNamedByTheModelsKey) {
  fs::create_directory(dir_ / "references");
  for (int i = 1; i <= 5; ++i)
    write_file(dir_ / "references" / fmt::format("cat_0{}.png", i), encode_png(test_picture(64, 64)));
  const std::vector<std::string> asked{"--model",   "flux",    "--models",  toy_folder().string(),
                                       "--variant", "kontext", "--dataset", photos.string(),
                                       "--for",     "style",   "--device",  "cpu"};
  std::vector<std::string> with = asked;
  with.insert(with.end(), {"--image", "control=" + (dir_ / "references").string()});
  EXPECT_THAT(init(asked).output, HasSubstr("datasets[0].images.control: missing"));
  const HostResult made = init(with);
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_THAT(get(out()), AllOf(HasSubstr("LoRA of flux kontext"), HasSubstr("variant: \"kontext\""),
                                HasSubstr("references/cat_01.png")));
  const HostResult dry = run_host({"train", "--config", out(), "--dry-run", "--out", (dir_ / "runs").string()});
  EXPECT_EQ(dry.code, 0) << dry.output;
  with.back() = "control";
  EXPECT_THAT(init(with).output, HasSubstr("--image control: expected the model's key and a folder"));
}

// A model that paints a part of an image: by masks of the user's its samples are of the first image, without them there
// is no sample. The photos do for masks, being of the same names and shapes.
TEST_F(Init, SamplesOfAPartOfAnImageNeedItsMask) {
  write_small_flux_fill(dir_ / "fill.safetensors");
  std::vector<std::string> asked{"--model",   (dir_ / "fill.safetensors").string(),
                                 "--models",  toy_folder().string(),
                                 "--dataset", photos.string(),
                                 "--for",     "concept",
                                 "--device",  "cpu"};
  const auto dry_run = [&] {
    const HostResult dry = run_host({"train", "--config", out(), "--dry-run", "--out", (dir_ / "runs").string()});
    EXPECT_EQ(dry.code, 0) << dry.output;
    return dry.output;
  };
  const HostResult drawn = init(asked);
  ASSERT_EQ(drawn.code, 0) << drawn.output;
  EXPECT_THAT(get(out()), AllOf(HasSubstr("LoRA of flux fill"), HasSubstr("inpaint_masks: 16  # drawn for each image"),
                                Not(HasSubstr("a person beside"))));
  EXPECT_THAT(dry_run(), HasSubstr("by masks of theirs, 5 by masks that are drawn"));
  asked.insert(asked.end(), {"--image", "mask=" + photos.string(), "--force"});
  const HostResult given = init(asked);
  ASSERT_EQ(given.code, 0) << given.output;
  EXPECT_THAT(get(out()),
              AllOf(HasSubstr("a person beside"), HasSubstr("\"image\": \"" + (photos / "cat_01.jpg").string()),
                    HasSubstr("\"mask\": \"" + (photos / "cat_01.jpg").string())));
  EXPECT_THAT(dry_run(), HasSubstr("inpaint  5 samples by masks of theirs, 0 by masks that are drawn"));
}

TEST_F(Init, WhatItWritesPassesTheDryRun) {
  for (const char* purpose : {"subject", "style", "concept"}) {
    const HostResult made = init({"--model", "flux", "--models", toy_folder().string(), "--dataset", photos.string(),
                                  "--for", purpose, "--device", "cpu", "--force"});
    ASSERT_EQ(made.code, 0) << made.output;
    const std::string text = get(out());
    EXPECT_THAT(text, AllOf(HasSubstr(std::string("# A ") + purpose + " LoRA of flux"), HasSubstr("  # rank: "),
                            HasSubstr("5 images; lora-host check looks at them"), HasSubstr("t5_path: "),
                            HasSubstr("name: \"my_photos\"")));
    const HostResult dry = run_host({"train", "--config", out(), "--dry-run", "--out", (dir_ / "runs").string()});
    EXPECT_EQ(dry.code, 0) << dry.output;
  }
}

// For a card that is not here, the memory planner's predictions decide.
TEST_F(Init, PlansForACard) {
  const std::vector<std::string> arguments{"--model",   (toy_folder() / "flux_toy.safetensors").string(),
                                           "--models",  toy_folder().string(),
                                           "--dataset", photos.string(),
                                           "--for",     "subject"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    return init(more);
  };
  const HostResult made = with({"--vram", "rtx 4070", "--trigger", "zwx cat", "--name", "cat"});
  ASSERT_EQ(made.code, 0) << made.output;
  const Config config = load_config(out());
  EXPECT_EQ(config.model.dtype, "auto");
  EXPECT_EQ(config.trigger_word, "zwx cat");
  EXPECT_EQ(config.name, "cat");
  EXPECT_EQ(config.device, "cuda");
  EXPECT_THAT(config.datasets.at(0).resolution, ElementsAre(256));
  EXPECT_THAT(get(out()), HasSubstr("dtype: \"auto\"  # predicted for rtx 4070: "));

  // Such small products are not what a step waits for: those in 8 bits are tried where the card is known to have them.
  EXPECT_EQ(config.model.products, "full");
  EXPECT_THAT(get(out()), HasSubstr("products: \"full\"  # float8 with dtype float8_e4m3 would take "));
  ASSERT_EQ(with({"--vram", "rtx 3090", "--force"}).code, 0);
  EXPECT_THAT(get(out()), HasSubstr("products: \"full\"  # int8 with dtype int8 would take "));
  ASSERT_EQ(with({"--vram", "24 GB", "--force"}).code, 0);
  EXPECT_THAT(get(out()), Not(HasSubstr("products")));
  EXPECT_EQ(load_config(out()).train.dtype, "bf16");
  ASSERT_EQ(with({"--vram", "rtx 2080 ti", "--force"}).code, 0);
  EXPECT_THAT(get(out()), HasSubstr("dtype: \"fp16\"  # the card has no matrix instructions for bf16"));

  // Before anything is looked at or planned.
  EXPECT_THAT(with({"--vram", "much"}).output,
              HasSubstr("train.yaml: is there already. Give another name, or --force"));
  EXPECT_THAT(with({"--vram", "much", "--force"}).output,
              HasSubstr("--vram: expected the card's memory in GiB, such as 24, its name, or figures"));
  const HostResult small = with({"--vram", "0.7", "--force"});
  EXPECT_EQ(small.code, 4) << small.output;
  EXPECT_THAT(small.output, HasSubstr("the run does not fit"));
}

TEST_F(Init, SaysWhatIsMissing) {
  const TempDir empty;
  fs::copy_file(toy_folder() / "flux_toy.safetensors", empty / "base.safetensors");
  const std::vector<std::string> data{"--dataset", photos.string(), "--for", "subject", "--device", "cpu"};
  struct Row {
    std::vector<std::string> arguments;
    const char* error;
  };
  for (const Row& row :
       {Row{{"--model", "flux", "--models", (dir_ / "nowhere").string()}, "no file in it holds a model of plugin flux"},
        {{"--model", "flux", "--models", empty.path().string()}, "has no vae_path (vae), clip_path (clip_l), t5_path"},
        {{"--model", "models/none.safetensors"}, "there is no models/none.safetensors"},
        {{"--model", "nothing", "--models", toy_folder().string()}, "nothing"}}) {
    std::vector<std::string> arguments = row.arguments;
    arguments.insert(arguments.end(), data.begin(), data.end());
    const HostResult result = init(arguments);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.output, HasSubstr(row.error));
    EXPECT_FALSE(fs::exists(out()));
  }
  EXPECT_THAT(init({"--model", "flux"}).output, HasSubstr("init: give --dataset DIR, or --from FILE"));
  EXPECT_THAT(init({"--from", "x", "--for", "style"}).output, HasSubstr("leave the others out"));
}

// What another model of the plugin reads prompts with, and what is for sound, is nobody's business.
TEST_F(Init, AsksForNoPartOfAnotherModel) {
  write_small_ltx2(dir_ / "ltx2.safetensors");
  const HostResult made = init({"--model", (dir_ / "ltx2.safetensors").string(), "--models", dir_.path().string(),
                                "--dataset", photos.string(), "--for", "style", "--device", "cpu", "--tokenizer",
                                (fs::path(source_dir()) / "tests/data/gemma_small").string()});
  EXPECT_EQ(made.code, 0) << made.output;
  EXPECT_THAT(get(out()), Not(HasSubstr("gemma4_path")));
  const HostResult shown = run_host({"inspect", (dir_ / "ltx2.safetensors").string()});
  EXPECT_THAT(shown.output, HasSubstr("not in it: model.gemma4_path (the model works without)"));
}

// What is written has to be read again.
TEST_F(Init, APathThatNoConfigurationCanHave) {
  const fs::path folder = dir_ / "caf\xe9";
  fs::create_directory(folder);
  fs::copy_file(photos / "cat_01.jpg", folder / "a.jpg");
  const HostResult result = init({"--model", "flux", "--models", toy_folder().string(), "--dataset", folder.string(),
                                  "--for", "style", "--device", "cpu"});
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("is not valid UTF-8"));
  EXPECT_FALSE(fs::exists(out()));
}

// The same run, in our keys: what the other program has otherwise where its file says nothing is written out.
TEST_F(Init, ConvertsFilesOfOtherPrograms) {
  const fs::path job = dir_ / "job.yaml", toml = dir_ / "training.toml", data = dir_ / "data.toml";
  put(job,
      "job: extension\nconfig:\n  name: dog\n  process:\n  - type: sd_trainer\n    network: {type: lora, linear: 8, "
      "linear_alpha: 8}\n    model: {name_or_path: m.safetensors, is_flux: true, quantize: true}\n"
      "    datasets: [{folder_path: photos, resolution: [512, 768]}]\n"
      "    train: {noise_scheduler: flowmatch, steps: 20, optimizer: adamw8bit, lr: 1e-4, disable_sampling: true}\n"
      "    logging: {use_wandb: false}\n");
  put(toml,
      "pretrained_model_name_or_path = \"m.safetensors\"\noutput_name = \"dog\"\nnetwork_dim = 8\n"
      "learning_rate = 1e-4\nmax_train_steps = 20\n");
  put(data,
      "[general]\ncaption_extension = \".txt\"\n[[datasets]]\nresolution = 512\n[[datasets.subsets]]\n"
      "image_dir = \"photos\"\nnum_repeats = 3\n");
  const std::vector<PluginKeys> plugins = built_plugins().model_keys();
  struct Row {
    std::vector<std::string> arguments;
    Config meant;
    const char* told;
  };
  for (const Row& row :
       {Row{{"--from", job.string()}, load_config(job, ConfigNeeds{.plugins = &plugins}), "is as ai-toolkit has it"},
        {{"--from", toml.string(), "--dataset-config", data.string()},
         load_config(toml, data, ConfigNeeds{}),
         "kohya"}}) {
    std::vector<std::string> arguments = row.arguments;
    arguments.push_back("--force");
    const HostResult result = init(arguments);
    ASSERT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr(row.told));
    const bool one_file = row.arguments.size() == 2;
    EXPECT_TRUE(!one_file || result.output.find(row.told) == result.output.rfind(row.told)) << result.output;
    Config meant = row.meant;
    meant.notes.clear();
    EXPECT_EQ(to_yaml(load_config(out())), to_yaml(meant)) << get(out());
    EXPECT_LT(get(out()).size(), to_yaml(meant).size()) << "keys that are as they would be anyway are left out";
  }
}

}  // namespace
}  // namespace lh::test::init_test
