// Models that are given further images of a sample: which files belong together, what the model is given of them, and
// runs that train, resume and sample with them. The model is "misfits" of tests/plugins, in its form "images".
#include "encode/image_inputs.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/error.h"
#include "data/further_images.h"
#include "data/read_cut.h"
#include "support/device.h"
#include "support/image_files.h"
#include "support/log.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::image_inputs_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path plugins = fs::path(binary_dir()) / "lib" / "lora-host-misfits";
const std::set<std::string> keys{"control", "mask"};

// Numbers from a fixed sequence, small enough that nothing overflows.
HostTensor numbers(Shape shape) {
  HostTensor out(Desc{DType::f32, std::move(shape)});
  for (size_t i = 0; i < out.as<float>().size(); ++i)
    out.as<float>()[i] = 0.05f * static_cast<float>(static_cast<int64_t>(i * 7919 % 41) - 20);
  return out;
}

class FurtherImages : public testing::Test {
 protected:
  FurtherImages() {
    setenv("LORA_TEST_MISFIT", "images", 1);
    for (const char* folder : {"photos", "control", "mask"}) fs::create_directory(dir_ / folder);
    for (const char* name : {"a", "b"}) {
      write_png(dir_ / "photos" / fmt::format("{}.png", name), test_picture(64, 64));
      put(dir_ / "photos" / fmt::format("{}.txt", name), "words");
    }
    write_png(dir_ / "control/a.png", test_picture(96, 96));
    write_png(dir_ / "control/b.png", test_picture(64, 80));
    write_png(dir_ / "mask/a.png", half_white());
    write_png(dir_ / "mask/b.png", half_white());
    data_.folder_path = dir_ / "photos";
    data_.resolution = {64};
    data_.images = {{"control", {{(dir_ / "control").string()}}}, {"mask", {{(dir_ / "mask").string()}}}};
  }
  ~FurtherImages() override { unsetenv("LORA_TEST_MISFIT"); }

  // 64 x 64: white in the left half, black in the right one.
  static Image half_white() {
    Image image{64, 64, std::vector<uint8_t>(64 * 64 * 3, 0)};
    for (size_t i = 0; i < image.rgb.size(); ++i)
      if (i / 3 % 64 < 32) image.rgb[i] = 255;
    return image;
  }
  Dataset open() const { return open_dataset({data_}, {}, 16, {}, keys); }
  std::string error() const {
    return error_of([&] { open(); });
  }

  TempDir dir_;
  DatasetConfig data_;
};

TEST_F(FurtherImages, BelongToTheImageOfTheSameName) {
  fs::rename(dir_ / "control/b.png", dir_ / "control/b.webp.png");  // another name
  EXPECT_THAT(error(), HasSubstr("images.control: 1 of 2 images of " + (dir_ / "photos").string() +
                                 " have none of the same name in " + (dir_ / "control").string() + ": b.png"));
  fs::rename(dir_ / "control/b.webp.png", dir_ / "control/b.PNG");
  const Dataset dataset = open();
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[1].images.at("control").path.filename(), "b.PNG");
  EXPECT_EQ(dataset.samples[1].images.at("control").size.height, 80);
  EXPECT_EQ(dataset.samples[0].images.at("mask").path.filename(), "a.png");
  fs::copy_file(dir_ / "control/b.PNG", dir_ / "control/b.png");
  EXPECT_THAT(error(), HasSubstr("have more than one of the same name"));
}

TEST_F(FurtherImages, KeysAreThoseOfTheModel) {
  data_.images["contrl"] = {{.text = "x", .source = "run.yaml", .line = 7, .column = 9}};
  EXPECT_THAT(error(),
              HasSubstr("run.yaml:7:9: datasets[0].images.contrl: the model is given no image of this key. Did "
                        "you mean control?"));
  data_.images.erase("contrl");
  data_.images.erase("mask");
  EXPECT_THAT(error(), HasSubstr("datasets[0].images.mask: missing"));
  data_.images["mask"] = {{(dir_ / "nowhere").string()}};
  EXPECT_THAT(error(), HasSubstr("nowhere: No such file or directory"));
  EXPECT_THAT(error_of([&] { open_dataset({data_}, {}, 16); }),
              HasSubstr("datasets[0].images.control: the model is given no image of this key. Remove it"));
}

TEST_F(FurtherImages, ASampleWithADamagedOneIsLeftOut) {
  FileBytes bytes = encode_png(half_white());
  bytes.resize(bytes.size() - 40);
  write_file(dir_ / "mask/a.png", bytes);
  EXPECT_EQ(open().samples.size(), 1u);
  const auto warnings = take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("mask/a.png"));
  data_.strict = true;
  EXPECT_THAT(error(), AllOf(HasSubstr("mask/a.png"), HasSubstr("[strict]")));
}

// A model file, and what the model is given of a sample.
class GivenImages : public FurtherImages {
 protected:
  GivenImages() {
    write_file(dir_ / "model.safetensors", {{"w.weight", numbers({4, 4})},
                                            {"enc.table.weight", numbers({32128, 8})},
                                            {"vae.down.weight", numbers({8, 3, 8, 8})},
                                            {"vae.up.weight", numbers({192, 4})}});
  }
};

TEST_F(GivenImages, AreCutLikeTheSampleAndMirroredWithIt) {
  const Registry registry({plugins}, {});
  const Model model(registry, {.name_or_path = dir_ / "model.safetensors"}, "misfits");
  Device device(tested_device());
  const Vae vae{device, model, DType::f32};
  LatentEncoding latents(vae, int64_t{1} << 40, {});
  ImageInputs images(model.recipe(), latents);
  const Sample sample = open().samples[1];
  for (const Flip flip : {Flip{}, Flip{.x = true}, Flip{.y = true}, Flip{.x = true, .y = true}}) {
    SCOPED_TRACE(fmt::format("{} {}", flip.x, flip.y));
    const std::vector<ImageCut> cuts = images.to_encode(sample.images, {sample.image, sample.bucket, flip});
    ASSERT_EQ(cuts.size(), 1u);
    latents.prepare(cuts);
    NamedTensors given =
        images.make(sample.images, {sample.image, sample.bucket, flip}, Random(0, Purpose::inpaint_posterior, 0, 0));
    ASSERT_EQ(given.size(), 3u);
    EXPECT_EQ(given.at("control").data, latents.mean(cuts[0]).data);
    EXPECT_EQ(given.at("control").desc, (Desc{DType::f32, {1, 8, 8, 4}}));
    const Image photo = resize_and_crop(decode_image(dir_ / "control/b.png"), 64, 64);
    EXPECT_EQ(given.at("photo").data, images_to_tensor(std::vector{photo}, flip).data);
    ASSERT_EQ(given.at("area").desc, (Desc{DType::f32, {1, 8, 8, 1}}));
    for (size_t i = 0; i < 64; ++i)
      EXPECT_EQ(given.at("area").as<float>()[i], (i % 8 < 4) != flip.x ? 1.0f : 0.0f) << i;
  }
}

TEST_F(GivenImages, AFileThatWasChangedMeanwhileIsRefused) {
  const Sample sample = open().samples[0];
  write_png(dir_ / "photos/a.png", half_white());
  EXPECT_THAT(error_of([&] { read_cut(sample.cut()); }),
              HasSubstr("a.png: the file was changed after the run had begun"));
}

class ImageRuns : public GivenImages {
 protected:
  HostResult train(const std::string& name, int64_t steps, std::vector<std::string> more = {}) {
    const std::string config = fmt::format(
        R"(name: {1}
training_folder: {0}
device: cpu
model: {{name_or_path: {0}/model.safetensors}}
network: {{linear: 2}}
datasets:
  - {{folder_path: {0}/photos, images: {{control: {0}/{3}, mask: {0}/mask}}, resolution: 64, flip_x: true}}
train: {{steps: {2}, lr: 0.01, dtype: fp32}}
sample:
  sample_every: 2
  width: 64
  height: 64
  prompts: [one, two]
  images: {{control: [{0}/control/a.png, {0}/control/b.png], mask: {0}/mask/a.png}}
)",
        dir_.path().string(), name, steps, control_);
    put(dir_ / "run.yaml", config);
    std::vector<std::string> arguments{
        "train", "--plugin-dir", plugins.string(), "--plugin", "misfits", "--config", (dir_ / "run.yaml").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_host(arguments);
  }
  HostResult sample(const std::string& out, const std::vector<std::string>& images) {
    std::vector<std::string> arguments{"sample",
                                       "--plugin-dir",
                                       plugins.string(),
                                       "--plugin",
                                       "misfits",
                                       "--model",
                                       (dir_ / "model.safetensors").string(),
                                       "--device",
                                       "cpu",
                                       "--prompt",
                                       "words",
                                       "--width",
                                       "64",
                                       "--height",
                                       "64",
                                       "--out",
                                       (dir_ / out).string()};
    for (const std::string& image : images) arguments.insert(arguments.end(), {"--image", image});
    return run_host(arguments);
  }
  std::string control_ = "control";
};

TEST_F(ImageRuns, TrainResumeAndSampleWithThem) {
  const HostResult whole = train("whole", 4);
  ASSERT_EQ(whole.code, 0) << whole.output;
  EXPECT_TRUE(fs::exists(dir_ / "whole/samples"));

  const HostResult half = train("parts", 2);
  ASSERT_EQ(half.code, 0) << half.output;
  const HostResult resumed = train("parts", 4, {"--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.output;
  const auto weights = [&](const char* name) {
    std::map<std::string, std::vector<std::byte>> all;
    for (const Given& t : tensors_of(dir_ / name / fmt::format("{}.safetensors", name))) all[t.name] = t.tensor.data;
    return all;
  };
  EXPECT_EQ(weights("parts"), weights("whole"));

  // Another image is another training.
  fs::create_directory(dir_ / "others");
  for (const char* name : {"a.png", "b.png"}) write_png(dir_ / "others" / name, half_white());
  control_ = "others";
  const HostResult refused = train("parts", 6, {"--resume"});
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(
      refused.output,
      HasSubstr("datasets: 1 image with other settings (size, batch size, repeats, masks, further images): a.png"));
  const HostResult other = train("other", 4);
  ASSERT_EQ(other.code, 0) << other.output;
  EXPECT_NE(weights("other"), weights("whole"));
}

TEST_F(ImageRuns, SamplesFollowTheirImages) {
  const std::string a = "control=" + (dir_ / "control/a.png").string(), b = "control=" + (dir_ / "mask/b.png").string(),
                    mask = "mask=" + (dir_ / "mask/a.png").string();
  const HostResult one = sample("one.png", {a, mask});
  ASSERT_EQ(one.code, 0) << one.output;
  ASSERT_EQ(sample("same.png", {a, mask}).code, 0);
  ASSERT_EQ(sample("two.png", {b, mask}).code, 0);
  EXPECT_EQ(get(dir_ / "one.png"), get(dir_ / "same.png"));
  EXPECT_NE(get(dir_ / "one.png"), get(dir_ / "two.png"));

  struct Row {
    std::vector<std::string> images;
    const char* error;
  };
  const Row rows[] = {
      {{a}, "sample.images.mask: missing: the model is given a further image of this key"},
      {{a, mask, "msk=x.png"},
       "--image: sample.images.msk: the model is given no image of this key. Did you mean mask?"},
      {{a, a, mask}, "--image: sample.images.control: expected one file, or one for each of the 1 prompts, found 2"},
      {{"control=/nowhere.png", mask}, "/nowhere.png"},
      {{"control", mask}, "--image control: expected the model's key and a file, such as control=photo.png"},
  };
  for (const Row& row : rows) {
    const HostResult result = sample("never.png", row.images);
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.output, HasSubstr(row.error));
    EXPECT_FALSE(fs::exists(dir_ / "never.png"));
  }
}

}  // namespace
}  // namespace lh::test::image_inputs_test
