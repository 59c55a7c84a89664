// The commands merge, convert, extract and resize as a user gives them, on the bundled model: what they write passes
// verify and samples as the originals do.
#include <gmock/gmock.h>

#include "io/lora_file.h"
#include "support/device.h"
#include "support/image_files.h"
#include "support/lora_cases.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::lora_tools_cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LoraCommands : public ::testing::Test {
 protected:
  LoraCommands() {
    make(dog, 4, 1);
    make(style, 2, 5);
  }

  // On layers of the bundled model, small enough that images stay images.
  void make(const fs::path& path, int64_t rank, double phase) const {
    const Checkpoint model(spec_of("flux"), {{"name_or_path", toy}});
    std::vector<LoraModule> modules;
    for (const char* const name :
         {"double_blocks.0.img_attn.qkv", "double_blocks.0.img_attn.proj", "double_blocks.0.txt_mlp.0"}) {
      const Shape& w = model.weights().at(std::string(name) + ".weight").shape;
      HostTensor down = wave({rank, w[1]}, phase), up = wave({w[0], rank}, phase + 1);
      for (float& v : up.as<float>()) v *= 0.05f;
      modules.push_back({name, down, up, 2});
    }
    write_lora(path, modules, spec_of("flux"), "kohya", DType::f32, {{{"ss_base_model_version", "flux1"}}});
  }

  HostResult run(std::vector<std::string> words) const { return run_host(words); }
  std::string fine(const std::vector<std::string>& words) const {
    const HostResult result = run(words);
    EXPECT_EQ(result.code, 0) << result.output;
    return result.output;
  }
  std::string refused(const std::vector<std::string>& words, int code = 2) const {
    const HostResult result = run(words);
    EXPECT_EQ(result.code, code) << result.output;
    return result.output;
  }
  void expect_verified(const fs::path& file) const { fine({"verify", file, "--model", toy}); }

  // An image in bf16, in which the weights of both ways are rounded once.
  std::vector<uint8_t> image(const fs::path& model, const std::vector<std::string>& loras) const {
    const fs::path png = dir / "image.png", parts = toy.parent_path();
    std::vector<std::string> words{"sample",
                                   "--model",
                                   model,
                                   "--vae",
                                   parts / "ae.safetensors",
                                   "--clip",
                                   parts / "clip_l.safetensors",
                                   "--t5",
                                   parts / "t5xxl.safetensors",
                                   "--device",
                                   tested_device(),
                                   "--bf16",
                                   "--width",
                                   "64",
                                   "--height",
                                   "64",
                                   "--steps",
                                   "2",
                                   "--prompt",
                                   "a photo",
                                   "--seed",
                                   "3",
                                   "--out",
                                   png,
                                   "--force"};
    for (const std::string& lora : loras) words.insert(words.end(), {"--lora", lora});
    fine(words);
    return pixels_of(png);
  }

  TempDir dir;
  const fs::path toy = toy_folder() / "flux_toy.safetensors";
  const fs::path dog = dir / "dog.safetensors", style = dir / "style.safetensors", out = dir / "out.safetensors";
};

TEST_F(LoraCommands, MergeIntoACheckpointSamplesTheSame) {
  const std::string said = fine({"merge", "--lora", dog.string() + ":0.5", "--lora", style, "--model", toy, "--into",
                                 "checkpoint", "--out", out});
  EXPECT_THAT(said, AllOf(HasSubstr("3 of "), HasSubstr("dog.safetensors * 0.5 + style.safetensors * 1")));
  const std::vector<uint8_t> merged = image(out, {});
  EXPECT_EQ(merged, image(toy, {dog.string() + ":0.5", style}));
  EXPECT_NE(merged, image(toy, {}));

  // The way back.
  const fs::path found = dir / "found.safetensors";
  EXPECT_THAT(fine({"extract", out, "--model", toy, "--energy", "0.9", "--out", found, "--format", "diffusers"}),
              AllOf(HasSubstr("3 modules"), HasSubstr("diffusers"), HasSubstr("0 unmatched")));
  expect_verified(found);
}

TEST_F(LoraCommands, ALoraIsNotExtractedFrom) {
  EXPECT_THAT(refused({"extract", dog, "--model", toy, "--rank", "4", "--out", out}),
              HasSubstr("dog.safetensors is a LoRA already, expected a tuned checkpoint"));
}

TEST_F(LoraCommands, OneLoraOfTwo) {
  const std::string said =
      fine({"merge", "--lora", dog, "--lora", style.string() + ":0.5", "--model", toy, "--into", "lora", "--out", out});
  EXPECT_THAT(said, AllOf(HasSubstr("6 -> 6"), HasSubstr("comfyui"), HasSubstr("9 loaded, 0 unmatched")));
  expect_verified(out);
  const Safetensors file(out);
  EXPECT_EQ(file.metadata().at("ss_network_dim"), "6");
  EXPECT_EQ(file.metadata().at("ss_base_model_version"), "flux1");
  EXPECT_EQ(file.metadata().at("lora_host.origin"), "dog.safetensors * 1 + style.safetensors * 0.5");
}

TEST_F(LoraCommands, ConvertAndResize) {
  EXPECT_THAT(fine({"convert", dog, "--format", "diffusers", "--model", toy, "--save-dtype", "bf16", "--out", out}),
              HasSubstr("diffusers"));
  expect_verified(out);
  const std::string table = fine({"resize", out, "--rank", "2", "--out", dir / "small.safetensors", "--model", toy});
  EXPECT_THAT(table, AllOf(HasSubstr("4 -> 2"), HasSubstr("% of the squared change is kept")));
  expect_verified(dir / "small.safetensors");
  EXPECT_THAT(fine({"resize", dog, "--energy", "0.9", "--out", dir / "less.safetensors"}), HasSubstr("verify"));
}

TEST_F(LoraCommands, NothingIsReplacedUnasked) {
  const std::string before = get(dog);
  EXPECT_THAT(refused({"resize", dog, "--rank", "1", "--out", dog, "--force"}), HasSubstr("is the input"));
  EXPECT_THAT(refused({"resize", dog, "--rank", "1", "--out", style}),
              AllOf(HasSubstr("is there already"), HasSubstr("--force")));
  EXPECT_THAT(refused({"merge", "--lora", dog, "--model", toy, "--into", "checkpoint", "--out", toy}),
              HasSubstr("is the input"));
  EXPECT_EQ(get(dog), before);
  fine({"resize", dog, "--rank", "1", "--out", style, "--force"});
  EXPECT_EQ(Safetensors(style).metadata().at("ss_network_dim"), "1");
}

TEST_F(LoraCommands, WrongCallsAreAnswered) {
  EXPECT_THAT(refused({"resize", dog, "--out", out}), HasSubstr("--rank, --energy"));
  EXPECT_THAT(refused({"resize", dog, "--energy", "1.5", "--out", out}), HasSubstr("--energy: expected a number"));
  EXPECT_THAT(refused({"convert", dog, "--out", out}), HasSubstr("--format"));
  EXPECT_THAT(refused({"convert", dog, "--format", "diffusers", "--out", out}), HasSubstr("needs --model"));
  EXPECT_THAT(refused({"convert", dog, "--format", "pony", "--model", toy, "--out", out}), HasSubstr("kohya"));
  EXPECT_THAT(refused({"merge", "--model", toy, "--into", "lora", "--out", out}), HasSubstr("--lora"));
  EXPECT_THAT(refused({"merge", "--lora", dog, "--model", toy, "--out", out}), HasSubstr("--into"));
  EXPECT_THAT(refused({"merge", "--lora", dog, "--model", toy, "--into", "checkpoint", "--rank", "4", "--out", out}),
              HasSubstr("--into lora"));
  EXPECT_THAT(refused({"extract", dir / "none.safetensors", "--model", toy, "--rank", "4", "--out", out}),
              HasSubstr("none.safetensors. Give the tuned checkpoint, and as --model the one it was trained from"));
  EXPECT_THAT(refused({"extract", toy, "--model", toy, "--rank", "4", "--out", out}, 3),
              HasSubstr("nothing to extract"));
  EXPECT_THAT(refused({"merge", "--lora", dir / "none.safetensors", "--model", toy, "--into", "lora", "--out", out}, 3),
              HasSubstr("none.safetensors"));
  for (const char* const command : {"merge", "convert", "extract", "resize"})
    EXPECT_THAT(fine({command, "--help"}), AllOf(HasSubstr("Examples:"), HasSubstr("--out"), HasSubstr("--force")));
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace lh::test::lora_tools_cli_test
