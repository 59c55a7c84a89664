// Models whose parts do not fit each other are refused before a run, by plugin, role and field.
#include "encode/check_model.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/error.h"
#include "data/read_cut.h"
#include "encode/text_encoding.h"
#include "io/lora_file.h"
#include "support/io_files.h"
#include "support/paths.h"

namespace lh::test::check_model_test {
namespace {

using ::testing::HasSubstr;

HostTensor zeros(Shape shape) { return HostTensor(Desc{DType::f32, std::move(shape)}); }

class CheckModel : public testing::Test {
 protected:
  CheckModel() : registry_({std::filesystem::path(binary_dir()) / "lib" / "lora-host-misfits"}, {}) {
    write_file(dir_ / "model.safetensors", {{"w.weight", zeros({4, 4})},
                                            {"enc.table.weight", zeros({32128, 8})},
                                            {"vae.down.weight", zeros({8, 3, 8, 8})},
                                            {"vae.up.weight", zeros({192, 4})},
                                            {"eye.look.weight", zeros({4, 3})}});
  }
  ~CheckModel() override { unsetenv("LORA_TEST_MISFIT"); }

  // Opens the model and checks it as a run does.
  void open(const char* misfit) {
    setenv("LORA_TEST_MISFIT", misfit, 1);
    ModelConfig config;
    config.name_or_path = dir_ / "model.safetensors";
    const Model model(registry_, config, "misfits");
    check_model(model, DType::f32);
  }

  TempDir dir_;
  Registry registry_;
};

TEST_F(CheckModel, ASoundOnePasses) {
  EXPECT_NO_THROW(open(""));
  EXPECT_NO_THROW(open("images"));
  EXPECT_NO_THROW(open("picture"));
}

TEST_F(CheckModel, WhatDoesNotFitIsNamed) {
  struct Row {
    const char *misfit, *error;
  };
  const Row rows[] = {
      // Recipe and denoiser.
      {"input_unknown", "role denoiser: asks for the input 'style', for which the recipe has no source"},
      {"source_missing", "role denoiser: asks for the input 'size_ids', for which the recipe has no source"},
      {"guidance_unasked", "role denoiser: does not ask for the input 'guidance' of the recipe (guidance)"},
      {"numbers", "role denoiser: input 'size_ids' is float32 [1, 2], but its source sizes gives float32 [1, 3]"},
      {"mask_type", "role denoiser: input 'text_mask' is float32 [1, 8], but its source mask.text gives int32"},
      {"output_channels", "role denoiser: output 'output' is float32 [1, 8, 8, 8], expected a float [1, 8, 8, 4]"},
      {"output_type", "role denoiser: output 'output' is int32"},
      {"output_name", "role denoiser: has no output 'output'; it gives velocity"},
      {"image_size",
       "role denoiser: input 'photo' is float32 [1, 32, 32, 3], but its source image.control gives float32 "
       "[1, 64, 64, 3] (recipe: inputs.photo)"},
      {"targets", "recipe: lora.targets match no linear layer of the denoiser"},
      // Recipe and conditioner.
      {"output_missing", "role conditioner: has no output 'summary' (recipe: inputs.pooled); it gives pooled, text"},
      {"mask_missing", "role conditioner: has no output 'there' (recipe: inputs.text.mask)"},
      {"mask_length", "role conditioner: mask 'text_mask' is int32 [1, 7] and 'text' is float32 [1, 8, 8]"},
      {"text_width", "role denoiser: input 'text' is float32 [1, 8, 8], but its source conditioner.text gives"},
      {"unknown_tokens",
       "role conditioner: asks for the input 'words.input_ids'; the recipe's tokenizers and pictures give"},
      {"ids_type", "role conditioner: input 'enc.input_ids' is float32 [1, 8], expected int32 [1, 8]"},
      {"tokenizer", "recipe: tokenizers.words: the checkpoint YAML has no component of this name"},
      {"conditioner_throws", "role conditioner: no encoder was written yet"},
      // Recipe and autoencoder.
      {"downscale", "role vae.encode: output 'posterior' is float32 [1, 16, 16, 8], expected a float [1, 8, 8, 8]"},
      {"posterior", "role vae.encode: has no output 'posterior'"},
      {"image", "role vae.decode: output 'image' is float32 [1, 64, 64, 1], expected a float [1, 64, 64, 3]"},
      {"time_axis",
       "role denoiser: input 'latents' is float32 [1, 8, 8, 4], expected [B, time, height, width, channels]"},
      // Recipe and an encoder that only sees.
      {"picture_encoder", "recipe: pictures.look.encoder: the checkpoint YAML has no component `lens`"},
      {"picture_size", "role conditioner: input 'look' is float32 [1, 8, 8, 3], expected float32 [1, 16, 16, 3]"},
      // What loads and cannot be run.
      {"picture_of_videos", "a model of videos is given further images (recipe: latents.axes, inputs, pictures)"},
      {"denoisers", "several denoisers share the noise levels (recipe: denoisers)"},
      {"other_latents", "several latents are diffused together (recipe: other_latents)"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.misfit);
    try {
      open(row.misfit);
      ADD_FAILURE() << "it was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::plugin);
      EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("misfits"), HasSubstr(row.error)));
    }
  }
}

TEST_F(CheckModel, NamesOfTheSaveFormatAreLookedAtBeforeTheRun) {
  setenv("LORA_TEST_MISFIT", "", 1);
  ModelConfig config;
  config.name_or_path = dir_ / "model.safetensors";
  const Model model(registry_, config, "misfits");
  const std::vector<LoraModule> modules{{"w", zeros({1, 4}), zeros({4, 1}), 1}};
  EXPECT_NO_THROW(check_lora_names(modules, model.spec(), "kohya"));
  EXPECT_THAT(error_of([&] { check_lora_names(modules, model.spec(), "diffusers"); }),
              HasSubstr("save.format: diffusers: modules of `denoiser` have no names in it. Use save.format kohya"));
  EXPECT_THAT(error_of([&] {
                check_lora_names({modules[0], modules[0]}, model.spec(), "kohya");
              }),
              HasSubstr("two modules are called 'lora_unet_w.lora_down.weight' in it"));
}

// Embeddings of a conditioner that has changed are not believed: nothing but a constant of its graph is another.
TEST_F(CheckModel, AChangedConstantMakesCachedTextAnew) {
  ModelConfig config;
  config.name_or_path = dir_ / "model.safetensors";
  const std::filesystem::path cache = dir_ / "cache";
  const auto entries_after = [&](const char* misfit) {
    setenv("LORA_TEST_MISFIT", misfit, 1);
    Device device("cpu");
    const Model model(registry_, config, "misfits");
    TextEncoding(device, model, DType::f32, cache).prepare({"a cat", "a dog"});
    return std::distance(std::filesystem::directory_iterator(cache), std::filesystem::directory_iterator());
  };
  EXPECT_EQ(entries_after(""), 2);
  EXPECT_EQ(entries_after(""), 2) << "the same model";
  EXPECT_EQ(entries_after("constant"), 4);
  EXPECT_EQ(entries_after(""), 4) << "the first entries are there still";
}

// An encoder without a tokenizer: its file is asked for, what it gives follows from the picture and is cached by it and
// by the encoder's weights.
TEST_F(CheckModel, APictureThatIsSeenAlone) {
  setenv("LORA_TEST_MISFIT", "picture", 1);
  for (const char* name : {"light", "dark"}) {
    const uint8_t grey = name[0] == 'l' ? 255 : 0;
    write_png(dir_ / (std::string(name) + ".png"), Image{8, 8, std::vector<uint8_t>(8 * 8 * 3, grey)});
  }
  const std::vector<float> weight(12, 0.25f);
  ModelConfig config;
  config.name_or_path = dir_ / "model.safetensors";
  const std::filesystem::path cache = dir_ / "cache";
  const auto glances = [&] {  // the first number of each
    Device device("cpu");
    const Model model(registry_, config, "misfits");
    TextEncoding text(device, model, DType::f32, cache);
    std::vector<Prompt> prompts;
    for (const char* name : {"light", "dark"})
      prompts.emplace_back(model.recipe(), "a cat",
                           ImageFiles{{"control", open_image(dir_ / (std::string(name) + ".png"))}},
                           ImageCut{.bucket = {8, 8}});
    text.prepare(prompts);
    std::vector<float> all;
    for (const Prompt& prompt : prompts) all.push_back(text.at(prompt)->at("glance").as<float>()[0]);
    return all;
  };
  const auto entries = [&] {
    return std::distance(std::filesystem::directory_iterator(cache), std::filesystem::directory_iterator());
  };
  EXPECT_EQ(glances(), (std::vector<float>{0, 0}));  // its weights are zero
  EXPECT_EQ(entries(), 2);
  write_file(dir_ / "eye.safetensors", {{"look.weight", HostTensor::from_floats({4, 3}, weight)}});
  config.given["eye_path"] = {dir_ / "eye.safetensors"};
  EXPECT_EQ(glances(), (std::vector<float>{0.75f, -0.75f}));
  EXPECT_EQ(entries(), 4);
  config.given.clear();
  write_file(dir_ / "model.safetensors", {{"w.weight", zeros({4, 4})}, {"enc.table.weight", zeros({32128, 8})}});
  EXPECT_THAT(error_of(glances), HasSubstr("model.eye_path: image encoder 'eye' is needed, but no file was given"));
}

}  // namespace
}  // namespace lh::test::check_model_test
