// Runs with everything that data may have: masks, regularization images, drawn captions and crops, several resolutions,
// images that are set apart, an average of the weights, samples of several kinds. They resume to the bit, and their
// caches survive the edit of one image.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "data/image.h"
#include "support/image_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::data_run_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Four images with masks and tags, two of which are set apart at a split of a half, and two regularization images.
class DataRun : public testing::Test {
 protected:
  DataRun() {
    for (const char* folder : {"train", "masks", "reg"}) fs::create_directories(run_.folder() / folder);
    for (int i = 0; i < 4; ++i) {
      write(fmt::format("train/{}", i), 80 + 16 * i, 64);
      Image mask = test_picture(80 + 16 * i, 64);
      for (size_t p = 0; p < mask.rgb.size(); ++p) mask.rgb[p] = p / 3 % 7 < 3 ? 255 : 40;
      write_file(run_.folder() / fmt::format("masks/{}.png", i), encode_png(mask));
    }
    for (int i = 0; i < 2; ++i) write(fmt::format("reg/{}", i), 64, 70 + i);
    run_.replace("  - folder_path: " + std::string(source_dir()) + "/examples/demo/photos\n    resolution: 64\n",
                 "  - folder_path: " + (run_.folder() / "train").string() +
                     "\n    mask_path: " + (run_.folder() / "masks").string() + R"(
    resolution: [48, 64]
    shuffle_tokens: true
    keep_tokens: 1
    token_dropout_rate: 0.2
    caption_dropout_every_n_epochs: 3
    random_crop: true
    color_aug: true
    augment_variants: 3
)");
    run_.replace("train:\n", "  - folder_path: " + (run_.folder() / "reg").string() + R"(
    resolution: 48
    is_reg: true
trigger_word: sks
train:
  reg_weight: 0.5
  loss: huber
  multires_noise_iterations: 3
  ip_noise_gamma: 0.1
  ip_noise_gamma_random_strength: true
  validation_split: 0.5
  validate_every_n_steps: 2
  ema_config: {use_ema: true, ema_decay: 0.9}
)");
    run_.set("gradient_accumulation", "2").set("caption_dropout_rate", "0.1").set("steps", "9");
    run_.replace("prompts: []",
                 R"(prompts: [a dog, {prompt: a cat, width: 48, height: 64, seed: 5, sample_steps: 1}])");
    run_.set("sample_every", "4");
  }

  void write(const std::string& name, int64_t width, int64_t height) {
    write_file(run_.folder() / (name + ".png"), encode_png(test_picture(width, height)));
    write_text(run_.folder() / (name + ".txt"), "photo, tree, " + name + ", sky, red");
  }
  void anew() { fs::remove_all(run_.output()); }
  std::string metrics() const { return get(run_.output() / "metrics.csv"); }
  std::map<std::string, std::string> images() const {
    std::map<std::string, std::string> all;
    for (const auto& file : fs::directory_iterator(run_.output() / "samples"))
      all[file.path().filename().string()] = get(file.path());
    return all;
  }
  // How many images a run said that it encodes.
  static int64_t encoded(const HostResult& result) {
    std::smatch found;
    return std::regex_search(result.output, found, std::regex("encoding ([0-9]+) images")) ? std::stoll(found[1]) : 0;
  }

  ToyRun run_;
};

TEST_F(DataRun, ResumesToTheBit) {
  expect_trained(run_.train());
  const std::string lora = get(run_.lora()), rows = metrics();
  const auto samples = images();
  EXPECT_EQ(samples.size(), 2u * 3) << "after 4, 8 and 9 steps";
  anew();
  for (const int64_t step : {1, 3, 4, 6, 8}) {
    HostProcess process(run_.command({"--resume"}));
    if (reaches(process, run_, step)) process.send(SIGKILL);
    process.wait();
  }
  expect_trained(run_.train({"--resume"}));
  EXPECT_TRUE(get(run_.lora()) == lora);
  EXPECT_EQ(metrics(), rows);
  EXPECT_TRUE(images() == samples);
}

TEST_F(DataRun, ValidationChangesNoTrainedBit) {
  expect_trained(run_.train());
  const std::string lora = get(run_.lora());
  const std::string rows = metrics();
  EXPECT_THAT(rows, testing::StartsWith("step,loss,lr,grad_norm,validation_loss\n"));
  // Rows 2, 4, 6, 8 and the last one have a loss, the others an empty column.
  std::string filled;
  for (size_t at = rows.find('\n') + 1; at < rows.size(); at = rows.find('\n', at) + 1)
    filled += rows[rows.find('\n', at) - 1] == ',' ? '.' : 'x';
  EXPECT_EQ(filled, ".x.x.x.xx");
  anew();
  run_.replace("validate_every_n_steps: 2", "validate_every_n_steps: 9");
  expect_trained(run_.train());
  EXPECT_TRUE(get(run_.lora()) == lora);
  const auto last = [](const std::string& text) { return text.substr(text.rfind(',')); };
  EXPECT_EQ(last(metrics()), last(rows)) << "the same noise and levels whenever it is asked for";
}

TEST_F(DataRun, CachesSurviveTheEditOfOneImage) {
  const HostResult first = run_.train();
  expect_trained(first);
  // Two of four images are set apart, of one variant each; the others have three; at two resolutions. And the reg ones.
  EXPECT_EQ(encoded(first), 2 * (2 * 3 + 2) + 2);
  anew();
  EXPECT_EQ(encoded(expect_trained(run_.train())), 0);
  anew();
  write("reg/0", 64, 90);
  EXPECT_EQ(encoded(expect_trained(run_.train())), 1);
  anew();
  write_text(run_.folder() / "reg/1.txt", "another caption");
  const HostResult edited = expect_trained(run_.train());
  EXPECT_EQ(encoded(edited), 0);
  EXPECT_THAT(edited.output, HasSubstr("encoding 1 prompts"));
}

// On 80 columns with room for what was logged; all of it comes with --verbose.
TEST_F(DataRun, ThePlanFitsOnAScreen) {
  for (int i = 0; i < 12; ++i) write(fmt::format("train/wide_{}", i), 64 + 16 * i, 32);
  const HostResult page = run_host(run_.command({"--dry-run"}), {.environment = {{"LORA_LOG", "error"}}});
  EXPECT_EQ(page.code, 0) << page.output;
  EXPECT_LE(std::ranges::count(page.output, '\n'), 40) << page.output;
  EXPECT_THAT(page.output,
              testing::AllOf(HasSubstr(" more\n"), HasSubstr("--verbose"), testing::Not(HasSubstr("training_folder:")),
                             testing::Not(HasSubstr("double_blocks.0."))));
  const HostResult all = run_host(run_.command({"--dry-run", "--verbose"}));
  EXPECT_THAT(all.output,
              testing::AllOf(HasSubstr("training_folder:"), HasSubstr("\n  double_blocks.0.img_attn.qkv\n")));
}

TEST_F(DataRun, PlanSaysWhatThereIs) {
  run_.replace("gradient_accumulation: 2", "gradient_accumulation: 2\n  max_train_epochs: 3");
  const HostResult plan = run_host(run_.command({"--dry-run"}));
  EXPECT_EQ(plan.code, 0) << plan.output;
  for (const char* part : {"samples have captions that are drawn", "per epoch are of regularization images, weight 0.5",
                           "masks    4 samples", "validation 4 samples that are not trained on", "steps are 3."})
    EXPECT_THAT(plan.output, HasSubstr(part));
  run_.replace("  max_train_epochs: 3", "  text_cache_limit_gib: 1e-6");
  const HostResult refused = run_host(run_.command({"--dry-run"}));
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.output, testing::AllOf(HasSubstr("train.text_cache_limit_gib is"), HasSubstr("raise the limit")));
}

}  // namespace
}  // namespace lh::test::data_run_test
