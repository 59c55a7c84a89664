// Models of which latents are the picture itself: what a recipe says of them, that pictures come back as they were,
// what is cached, and runs of the command. The small model is "misfits" of tests/plugins, in its form "pixels".
#include <gmock/gmock.h>

#include <cstdlib>
#include <numeric>

#include "data/inpaint_mask.h"
#include "encode/check_model.h"
#include "encode/image_inputs.h"
#include "plugin/inspect_checkpoint.h"
#include "support/device.h"
#include "support/image_files.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::pixels_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const fs::path plugins = fs::path(binary_dir()) / "lib" / "lora-host-misfits";
constexpr int64_t plenty = int64_t{1} << 40;

HostTensor numbers(Shape shape) {
  HostTensor out(Desc{DType::f32, std::move(shape)});
  for (size_t i = 0; i < out.as<float>().size(); ++i)
    out.as<float>()[i] = 0.05f * static_cast<float>(static_cast<int64_t>(i * 7919 % 41) - 20);
  return out;
}

constexpr const char* recipe = R"(family: tiny
objective: flow
latents: {pixels: true, multiple: 16}
inputs: {t: {source: time}}
timestep: {type: uniform}
sampling: {sampler: euler, steps: 2, schedule: {kind: flow}}
lora: {targets: [a]}
)";

TEST(Pixels, OfARecipe) {
  const LatentSpec spec = Recipe::parse(recipe, "tiny").latents;
  EXPECT_TRUE(spec.pixels);
  EXPECT_EQ(spec.channels, 3);
  EXPECT_EQ(spec.downscale, 1);
  EXPECT_EQ(spec.pixel_step(), 16);
  for (const char* field : {"channels: 3", "downscale: 1", "axes: [time, height, width]"}) {
    std::string text = recipe;
    text.insert(text.find("multiple"), std::string(field) + ", ");
    const std::string name = std::string(field).substr(0, std::string(field).find(':'));
    EXPECT_THAT(error_of([&] { Recipe::parse(text, "tiny"); }),
                HasSubstr("latents." + name + ": pixels of a picture have 3 channels and a place each"));
  }
}

class PixelModel : public testing::Test {
 protected:
  PixelModel() { setenv("LORA_TEST_MISFIT", "pixels", 1); }
  ~PixelModel() override { unsetenv("LORA_TEST_MISFIT"); }

  fs::path model_file() {
    write_file(dir_ / "model.safetensors", {{"w.weight", numbers({3, 3})}, {"enc.table.weight", numbers({32128, 8})}});
    return dir_ / "model.safetensors";
  }

  TempDir dir_;
};

// Every byte, whatever the place of the channel, and mirrored as asked for.
TEST_F(PixelModel, PicturesAreKeptAsTheyAre) {
  const Registry registry({plugins}, {});
  const Model model(registry, {.name_or_path = model_file()}, "misfits");
  Image photo{32, 16, std::vector<uint8_t>(32 * 16 * 3)};
  std::iota(photo.rgb.begin(), photo.rgb.end(), uint8_t{0});
  write_png(dir_ / "photo.png", photo);
  Device device(tested_device());
  const Vae vae{device, model, DType::bf16};
  LatentEncoding latents(vae, plenty, dir_ / "cache");
  for (const Flip flip : {Flip{}, Flip{.x = true}, Flip{.x = true, .y = true}}) {
    const ImageCut cut{open_image(dir_ / "photo.png"), {32, 16}, flip};
    EXPECT_EQ(latents.bytes_to_cache({cut}), 32 * 16 * 3);
    latents.prepare({cut});
    const HostTensor x = latents.mean(cut);
    EXPECT_EQ(x.desc, (Desc{DType::f32, {1, 16, 32, 3}}));
    std::vector<float> drawn(x.as<float>().size());
    latents.draw(cut, Random(1, Purpose::posterior, 2, 3), drawn);
    for (int64_t i = 0; i < 16 * 32 * 3; ++i) {
      const int64_t row = flip.y ? 15 - i / 96 : i / 96, column = flip.x ? 31 - i / 3 % 32 : i / 3 % 32;
      const int byte = photo.rgb[static_cast<size_t>((row * 32 + column) * 3 + i % 3)];
      ASSERT_EQ(x.as<float>()[static_cast<size_t>(i)], static_cast<float>(byte) / 127.5f - 1.0f) << i;
      ASSERT_EQ(drawn[static_cast<size_t>(i)], x.as<float>()[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(image_bytes(tensor_to_images(x), {}).data, image_bytes(std::vector{photo}, flip).data);
  }
  LatentEncoding again(vae, plenty, dir_ / "cache");
  EXPECT_EQ(again.bytes_to_cache({{open_image(dir_ / "photo.png"), {32, 16}}}), 0);
}

TEST_F(PixelModel, WhatIsToBePaintedAnewIsGrey) {
  setenv("LORA_TEST_MISFIT", "pixels_inpaint", 1);
  const Registry registry({plugins}, {});
  const Model model(registry, {.name_or_path = model_file()}, "misfits");
  write_png(dir_ / "photo.png", test_picture(32, 16));
  Device device(tested_device());
  const Vae vae{device, model, DType::f32};
  LatentEncoding latents(vae, plenty, {});
  ImageInputs images(model.recipe(), latents);
  const ImageCut own{open_image(dir_ / "photo.png"), {32, 16}, {}, {}, InpaintMask{.file = {}, .number = 3}};
  latents.prepare(images.to_encode({}, own));
  NamedTensors given = images.make({}, own, Random(7, Purpose::inpaint_posterior, 5, 1));
  const std::vector<uint8_t> mask = inpaint_mask(own);
  const HostTensor photo = images_to_tensor(std::vector{test_picture(32, 16)}, {});
  ASSERT_EQ(given.at("seen").desc, (Desc{DType::f32, {1, 16, 32, 3}}));
  ASSERT_EQ(given.at("hole").desc, (Desc{DType::f32, {1, 16, 32, 1}}));
  for (size_t i = 0; i < mask.size(); ++i) {
    ASSERT_EQ(given.at("hole").as<float>()[i], mask[i]) << i;
    for (size_t c = 3 * i; c < 3 * i + 3; ++c)
      ASSERT_EQ(given.at("seen").as<float>()[c], mask[i] != 0 ? 0.0f : photo.as<float>()[c]) << i;
  }
}

TEST_F(PixelModel, IsCheckedBeforeARun) {
  const Registry registry({plugins}, {});
  const auto check = [&](const char* form) {
    setenv("LORA_TEST_MISFIT", form, 1);
    check_model(Model(registry, {.name_or_path = model_file()}, "misfits"), DType::f32);
  };
  EXPECT_NO_THROW(check("pixels"));
  EXPECT_NO_THROW(check("pixels_inpaint"));
  EXPECT_THAT(error_of([&] { check("pixels_decoded"); }),
              HasSubstr("role vae.encode: latents are the picture itself, and have no VAE (recipe: latents.pixels)"));
}

TEST_F(PixelModel, AutoencodersAreNotAskedForNorTaken) {
  const Registry registry({plugins}, {});
  const fs::path file = model_file();
  EXPECT_THAT(report_text(inspect_checkpoint(registry, file)), AllOf(HasSubstr("eye"), Not(HasSubstr("vae"))));
  write_file(dir_ / "vae.safetensors",
             {{"vae.down.weight", numbers({8, 3, 8, 8})}, {"vae.up.weight", numbers({192, 4})}});
  ModelConfig config{.name_or_path = file};
  config.given["vae_path"] = {.text = (dir_ / "vae.safetensors").string()};
  EXPECT_THAT(error_of([&] { const Model model(registry, config, "misfits"); }),
              HasSubstr("model.vae_path: model family 'misfits', , works on pixels and has no VAE. Leave it out"));
}

TEST_F(PixelModel, TrainsSamplesAndResumesByTheCommand) {
  fs::create_directory(dir_ / "photos");
  for (const char* name : {"a", "b"}) {
    write_png(dir_ / "photos" / (std::string(name) + ".png"), test_picture(48, 32));
    put(dir_ / "photos" / (std::string(name) + ".txt"), name);
  }
  const auto train = [&](const std::string& name, int64_t steps, const std::vector<std::string>& more) {
    put(dir_ / "run.yaml", fmt::format(R"(name: {1}
training_folder: {0}
device: cpu
model: {{name_or_path: {2}}}
network: {{linear: 2}}
datasets:
  - {{folder_path: {0}/photos, resolution: 32, flip_x: true}}
train: {{steps: {3}, lr: 0.01, dtype: fp32}}
sample: {{sample_every: 2, width: 34, height: 32, prompts: [one]}}
)",
                                       dir_.path().string(), name, model_file().string(), steps));
    std::vector<std::string> arguments{
        "train", "--plugin-dir", plugins.string(), "--plugin", "misfits", "--config", (dir_ / "run.yaml").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const HostResult result = run_host(arguments);
    EXPECT_EQ(result.code, 0) << result.output;
    return result;
  };
  const auto weights = [&](const std::string& name) {
    std::map<std::string, std::vector<std::byte>> all;
    for (const Given& t : tensors_of(dir_ / name / (name + ".safetensors"))) all[t.name] = t.tensor.data;
    return all;
  };
  train("whole", 4, {});
  train("parts", 2, {});
  train("parts", 4, {"--resume"});
  EXPECT_EQ(weights("parts"), weights("whole"));
  size_t samples = 0;
  for (const auto& entry : fs::directory_iterator(dir_ / "whole" / "samples")) {
    const Image sample = decode_image(entry.path());
    EXPECT_EQ(sample.width, 34);
    EXPECT_EQ(sample.height, 32);
    ++samples;
  }
  EXPECT_GE(samples, 2u);
}

}  // namespace
}  // namespace lh::test::pixels_test
