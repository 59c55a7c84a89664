// What pictures say of how they were made: the text, and the files of `sample` and of runs.
#include "sample/generation_parameters.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "data/codecs.h"
#include "io/lora_seal.h"
#include "io/safetensors.h"
#include "support/device.h"
#include "support/image_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/sampler_case.h"

namespace lh::test::generation_parameters_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* version = ", Version: lora-host " LORA_HOST_VERSION;

// As AUTOMATIC1111's interface takes the last line apart.
std::map<std::string, std::string> fields_of(const std::string& text) {
  static const std::regex field(R"_(\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$))_");
  const std::string line = text.substr(text.rfind('\n') + 1);
  std::map<std::string, std::string> fields;
  for (std::sregex_iterator at(line.begin(), line.end(), field), end; at != end; ++at) {
    const std::string value = (*at)[2];
    fields[(*at)[1]] = value.starts_with('"') ? nlohmann::json::parse(value).get<std::string>() : value;
  }
  return fields;
}

struct Parameters : testing::Test {
  std::string text(const SampleRequest& request, const GenerationParameters::Fields& more = {}) const {
    SampleConfig config;
    config.sampler = sampler;
    return GenerationParameters(model, choose_sampler(built_plugins(), recipe, config), loras)
        .text(request, recipe, more);
  }
  Recipe recipe = golden::recipe_of(Objective::epsilon, ScheduleSpec::Spacing::leading);
  std::string sampler = "DPM++ 2M Karras";
  ModelConfig model{.name_or_path = "folder/model-v1.5.safetensors"};
  std::vector<LoraInput> loras;
  SampleRequest request{.prompt = "a photo", .width = 64, .height = 96, .steps = 7, .guidance = {.scale = 4.5}};
};

TEST_F(Parameters, AreInTheWordsOfOtherPrograms) {
  request.seed = 18446744073709551615u;
  EXPECT_EQ(text(request), std::string("a photo\nSteps: 7, Sampler: DPM++ 2M, Schedule type: Karras, CFG scale: 4.5, "
                                       "Seed: 18446744073709551615, Size: 64x96, Model: model-v1.5") +
                               version);
  // A negative prompt that the model is not asked with made nothing of the picture.
  request.negative = "blurry";
  EXPECT_THAT(text(request), Not(HasSubstr("blurry")));
  request.guidance.classifier_free = true;
  EXPECT_THAT(text(request), StartsWith("a photo\nNegative prompt: blurry\nSteps: 7, "));
  request.prompt = "";
  EXPECT_THAT(text(request), StartsWith("Negative prompt: blurry\nSteps: 7, "));
}

TEST_F(Parameters, SayWhatIsNotUsual) {
  request.guidance = {
      .scale = 3, .classifier_free = true, .by_patches = true, .limit = 2, .rescale = 0.7, .until = 0.5};
  request.guidance.skip_layers = SkipLayerGuidance{.layers = {1}, .scale = 2.5};
  request.frames = 33;
  request.fps = 24;
  request.images["control"] = {.path = "some/where/a, b.png"};
  const auto fields = fields_of(text(request, {{"LoRA", "a: b"}, {"Training step", "250"}}));
  for (const auto& [name, value] : {std::pair("CFG rescale", "0.7"),
                                    {"CFG renorm", "2"},
                                    {"CFG norm", "True"},
                                    {"CFG truncation", "0.5"},
                                    {"Skip layer guidance scale", "2.5"},
                                    {"Frames", "33"},
                                    {"FPS", "24"},
                                    {"Image control", "a, b.png"},
                                    {"LoRA", "a: b"},
                                    {"Training step", "250"}})
    EXPECT_EQ(fields.at(name), value) << name;
  // A number that the model takes is no second run of it.
  recipe.inputs["guidance"].source = InputSpec::Source::guidance;
  EXPECT_THAT(text(request), HasSubstr("CFG scale: 1, Distilled CFG Scale: 3, "));
}

TEST_F(Parameters, NameModelsAndLoras) {
  const TempDir dir;
  const fs::path lora = dir / "my \"dog\"\xff.safetensors";
  write_file(lora, std::vector<Given>{{"a.lora_down.weight", floats(Shape{1, 2}, {1, 2})}});
  loras = {{.path = lora, .strength = 0.8}, {.path = lora, .strength = -1}};
  fs::create_directory(dir / "FLUX.1-dev");
  model.name_or_path = dir / "FLUX.1-dev/";
  const std::string said = text(request), name = "my \"dog\"\xef\xbf\xbd";
  EXPECT_THAT(said, StartsWith("a photo <lora:" + name + ":0.8> <lora:" + name + ":-1>\nSteps: "));
  const auto fields = fields_of(said);
  EXPECT_EQ(fields.at("Model"), "FLUX.1-dev");
  const std::string hash = data_hash(Safetensors(lora)).substr(0, 12);
  EXPECT_EQ(fields.at("Lora hashes"), fmt::format("{}: {}, {}: {}", name, hash, name, hash));
  EXPECT_THAT(said, Not(HasSubstr(dir.path().string())));
}

// The pictures of a run and of `sample`, the second time in another folder with the same bytes; `inspect` shows them.
TEST(PicturesOfRuns, SayHowTheyWereMade) {
  const auto trained = [](ToyRun& run) {
    run.set("steps", "2").set("sample_every", "2").set("prompts", "[\"ein M\xc3\xa4rchen --d 7\"]");
    expect_trained(run.train());
    return run.output() / "samples/000000002_0.png";
  };
  ToyRun run, again;
  const fs::path sample = trained(run);
  const std::string of_run = png_parameters(read_image_file(sample));
  EXPECT_THAT(of_run, AllOf(StartsWith("ein M\xc3\xa4rchen\nSteps: "),
                            HasSubstr(", Seed: 7, Size: 64x64, Model: flux_toy, LoRA: toy, Training step: 2, ")));
  EXPECT_EQ(get(trained(again)), get(sample));

  const auto sampled = [&](const ToyRun& of, const char* out) {
    const fs::path file = of.folder() / out;
    fs::copy_file(run.lora(), of.folder() / "dog.safetensors", fs::copy_options::overwrite_existing);
    const HostResult result = run_host({"sample", "--config", (of.folder() / "train.yaml").string(), "--lora",
                                        (of.folder() / "dog.safetensors").string() + ":0.5", "--out", file.string()});
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr(file.string() + "\n"));
    return file;
  };
  const fs::path first = sampled(run, "a.png"), second = sampled(again, "b.png");
  const Safetensors lora(run.lora());
  const std::string hash = lora.metadata().at("sshs_model_hash").substr(0, 12);
  EXPECT_THAT(png_parameters(read_image_file(first)), AllOf(StartsWith("ein M\xc3\xa4rchen <lora:dog:0.5>\n"),
                                                            HasSubstr("Lora hashes: \"dog: " + hash + "\"")));
  EXPECT_EQ(get(first), get(second));

  const HostResult shown = run_host({"inspect", first.string()});
  EXPECT_EQ(shown.code, 0);
  EXPECT_THAT(shown.output,
              AllOf(HasSubstr("PNG, 64 x 64 pixels"), HasSubstr("\n    ein M\xc3\xa4rchen <lora:dog:0.5>\n")));
  const nlohmann::json json = nlohmann::json::parse(run_host({"inspect", first.string(), "--json"}).output);
  EXPECT_EQ(json["parameters"], png_parameters(read_image_file(first)));
  EXPECT_EQ(json["size"], nlohmann::json({64, 64}));
}

TEST(PicturesOfRuns, InspectTellsWhatItCannotShow) {
  const TempDir dir;
  write_file(dir / "plain.png", encode_png(test_picture(4, 3)));
  EXPECT_THAT(run_host({"inspect", (dir / "plain.png").string()}).output,
              AllOf(HasSubstr("PNG, 4 x 3 pixels"), HasSubstr("does not say how it was made")));
  FileBytes cut = encode_png(test_picture(4, 3));
  cut.resize(20);
  write_file(dir / "cut.png", cut);
  EXPECT_THAT(run_host({"inspect", (dir / "cut.png").string()}).output, HasSubstr("not for training: "));
  const std::string steers = "a \x1b[2J";
  write_file(dir / "steers.png", encode_png(test_picture(4, 3), steers));
  EXPECT_THAT(run_host({"inspect", (dir / "steers.png").string()}).output, HasSubstr("a \\x1b[2J"));
}

}  // namespace
}  // namespace lh::test::generation_parameters_test
