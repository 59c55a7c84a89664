// Flux.1 where its weights do not say all: Kontext, which is shown a reference picture, Fill, which paints a part of
// one, and training without the guidance embedder. The graph of Kontext is held against an independent one by the
// golden case flux_kontext_tiny, that of Fill by inpaint_test.cpp.
#include <gmock/gmock.h>
#include <signal.h>

#include "support/image_files.h"
#include "support/model_shapes.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"
namespace lh::test::flux_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

ModelConfig with_variant(const fs::path& path, const std::string& variant) {
  ModelConfig config = single(path);
  if (!variant.empty()) config.given["variant"] = {variant};
  return config;
}

// What a model is taken for: its variant, and the inputs of its denoiser.
std::string taken_for(const ModelConfig& config) {
  const Model model(built_plugins(), config, "");
  std::string text = model.recipe().variant + ":";
  for (const auto& [name, spec] : model.recipe().inputs) text += " " + name;
  return text;
}

TEST(FluxVariants, AreToldByWeightsByTheUserAndByTheIndex) {
  const TempDir dir;
  const fs::path guided = dir / "guided.safetensors", folder = dir / "diffusers";
  write_small_flux_dev(guided);
  write_directory(folder, spec_of("flux"), {{"denoiser", tensors_of(guided)}}, {"denoiser"}, "", as_is);
  EXPECT_EQ(taken_for(with_variant(toy_denoiser(), "")), "schnell: pooled text timestep");
  EXPECT_EQ(taken_for(with_variant(guided, "")), "dev: guidance pooled text timestep");
  EXPECT_EQ(taken_for(with_variant(guided, "kontext")), "kontext: guidance pooled reference text timestep");
  EXPECT_EQ(taken_for(with_variant(toy_denoiser(), "kontext")), "kontext: pooled reference text timestep");
  EXPECT_THAT(taken_for(with_variant(folder, "")), StartsWith("dev:"));
  put(folder / "model_index.json", R"({"_class_name": "FluxKontextPipeline"})");
  EXPECT_THAT(taken_for(with_variant(folder, "")), StartsWith("kontext:"));
  EXPECT_THAT(taken_for(with_variant(folder, "dev")), StartsWith("dev:"));
  EXPECT_THAT(error_of([&] { taken_for(with_variant(guided, "schnell")); }), HasSubstr("it is a dev model"));

  const fs::path fill = dir / "fill.safetensors";
  write_small_flux_fill(fill);
  for (const char* said : {"", "fill"})
    EXPECT_EQ(taken_for(with_variant(fill, said)), "fill: guidance mask masked_image pooled text timestep");
  EXPECT_THAT(error_of([&] { taken_for(with_variant(fill, "dev")); }),
              HasSubstr("variant is dev, but img_in.weight has 384 columns: it is a Fill model"));
  EXPECT_THAT(error_of([&] { taken_for(with_variant(guided, "fill")); }),
              HasSubstr("variant is fill, but img_in.weight has 64 columns: it is none of Fill"));
}

using Tensors = std::map<std::string, std::vector<std::byte>>;

Tensors trained(const ToyRun& run) {
  Tensors all;
  for (const Given& t : tensors_of(run.lora())) all[t.name] = t.tensor.data;
  return all;
}

// From the start to the end, killed on the way.
void train_with_a_kill(const ToyRun& run) {
  fs::remove_all(run.output());
  {
    HostProcess process(run.command());
    if (reaches(process, run, 3)) process.send(SIGKILL);
    process.wait();
  }
  expect_trained(run.train({"--resume"}));
}

// The shipped photos with a reference of the same name for each.
class KontextRun : public testing::Test {
 protected:
  KontextRun() {
    for (const char* folder : {"control", "others"}) {
      fs::create_directory(run_.folder() / folder);
      int64_t side = folder == std::string("control") ? 64 : 90;
      for (const auto& photo : fs::directory_iterator(fs::path(source_dir()) / "examples/demo/photos"))
        if (photo.path().extension() == ".jpg")
          write_file(picture(folder, photo.path().stem()), encode_png(test_picture(side++, 72)));
    }
    run_.replace("network:\n", "  variant: kontext\nnetwork:\n");
    run_.replace("    resolution: 64\n",
                 fmt::format("    resolution: 64\n    images: {{control: {}/control}}\n", folder()));
    run_.replace("prompts: []",
                 fmt::format("prompts: [one, {{prompt: two, images: {{control: {}}}}}]\n  images: "
                             "{{control: {}}}",
                             picture("others", "cat_02").string(), picture("control", "cat_01").string()));
    run_.set("sample_every", "2");
  }
  std::string folder() const { return run_.folder().string(); }
  fs::path picture(const std::string& in, const std::string& name) const {
    return run_.folder() / in / (name + ".png");
  }

  ToyRun run_;
};

TEST_F(KontextRun, ResumesToTheBitAndSeesItsReferences) {
  expect_trained(run_.train());
  const Tensors whole = trained(run_);
  const auto sample = [&](int prompt) {
    return get(run_.output() / "samples" / fmt::format("{:09}_{}.png", 6, prompt));
  };
  const std::string one = sample(0), two = sample(1);
  EXPECT_NE(one, "");
  train_with_a_kill(run_);
  EXPECT_EQ(trained(run_), whole);
  EXPECT_TRUE(sample(0) == one && sample(1) == two);

  // Others teach something else.
  run_.replace("/control}\n", "/others}\n");
  const HostResult refused = run_.train({"--resume"});
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("further images"));
  fs::remove_all(run_.output());
  expect_trained(run_.train());
  EXPECT_NE(trained(run_), whole);
  EXPECT_NE(sample(0), one);
}

// So that programs which load LoRAs of dev load those of Kontext.
TEST_F(KontextRun, LorasHaveTheNamesOfDev) {
  expect_trained(run_.set("steps", "1").train());
  ToyRun plain;
  expect_trained(plain.set("steps", "1").train());
  const Tensors with = trained(run_), without = trained(plain);
  std::vector<std::string> names, expected;
  for (const auto& [name, data] : with) names.push_back(name);
  for (const auto& [name, data] : without) expected.push_back(name);
  EXPECT_EQ(names, expected);
  EXPECT_NE(with, without);
}

TEST_F(KontextRun, MissingReferencesAreSaidBeforeTheFirstStep) {
  const std::string whole = run_.config();
  run_.replace(fmt::format("    images: {{control: {}/control}}\n", folder()), "");
  EXPECT_THAT(run_.train({"--dry-run"}).output, HasSubstr("datasets[0].images.control: missing"));
  run_.config() = whole;
  fs::remove(picture("control", "cat_03"));
  EXPECT_THAT(run_.train({"--dry-run"}).output,
              HasSubstr("images.control: 1 of 5 images of " + std::string(source_dir()) +
                        "/examples/demo/photos have "
                        "none of the same name"));
}

// The shipped photos, a part of which is painted anew; and masks of the user's for them.
class FillRun : public testing::Test {
 protected:
  FillRun() {
    write_small_flux_fill(run_.folder() / "fill.safetensors");
    fs::create_directory(run_.folder() / "masks");
    for (const auto& photo : fs::directory_iterator(photos_))
      if (photo.path().extension() == ".jpg") half_white(photo.path());
    run_.replace(toy_denoiser().string(), (run_.folder() / "fill.safetensors").string());
    run_.set("max_sequence_length", "64");
    run_.replace("    resolution: 64\n", "    resolution: 64\n    inpaint_masks: 3\n");
    run_.set("flip_x", "true");
    run_.replace("prompts: []", fmt::format("prompts: [one, \"two --mask {}\"]\n  images: {{image: {}, mask: {}}}",
                                            (photos_ / "cat_01.jpg").string(), (photos_ / "cat_01.jpg").string(),
                                            mask("cat_01").string()));
    run_.set("sample_every", "2");
  }
  fs::path mask(const std::string& name) const { return run_.folder() / "masks" / (name + ".png"); }
  void half_white(const fs::path& photo) const {
    const ImageSize size = image_size(photo);
    Image image{size.width, size.height, std::vector<uint8_t>(static_cast<size_t>(3 * size.width * size.height), 0)};
    for (size_t i = 0; i < image.rgb.size(); ++i)
      if (static_cast<int64_t>(i) / 3 % size.width < size.width / 2) image.rgb[i] = 255;
    write_png(mask(photo.stem()), image);
  }
  std::string sample(int prompt) const {
    return get(run_.output() / "samples" / fmt::format("{:09}_{}.png", 6, prompt));
  }
  void give_masks() {
    run_.replace("    inpaint_masks: 3\n", fmt::format("    images: {{mask: {}/masks}}\n", run_.folder().string()));
  }

  const fs::path photos_ = fs::path(source_dir()) / "examples/demo/photos";
  ToyRun run_;
};

TEST_F(FillRun, ResumesToTheBitWithMasksThatAreDrawn) {
  const HostResult first = expect_trained(run_.train());
  const Tensors whole = trained(run_);
  const std::string one = sample(0), two = sample(1);
  EXPECT_NE(one, "");
  EXPECT_NE(one, two);
  train_with_a_kill(run_);
  EXPECT_EQ(trained(run_), whole);
  EXPECT_TRUE(sample(0) == one && sample(1) == two);

  // Masks of the user's teach something else, and so do more that are drawn.
  run_.replace("inpaint_masks: 3", "inpaint_masks: 4");
  EXPECT_THAT(run_.train({"--resume"}).output, HasSubstr("5 images with other settings"));
  run_.replace("inpaint_masks: 4", "inpaint_masks: 3");
  give_masks();
  const HostResult refused = run_.train({"--resume"});
  EXPECT_EQ(refused.code, 2) << refused.output;
  fs::remove_all(run_.output());
  expect_trained(run_.train());
  EXPECT_NE(trained(run_), whole);
  EXPECT_EQ(sample(0) == one, false);
}

TEST_F(FillRun, LorasHaveTheNamesOfDev) {
  expect_trained(run_.set("steps", "1").train());
  ToyRun plain;
  expect_trained(plain.set("steps", "1").train());
  std::vector<std::string> names, expected;
  for (const auto& [name, data] : trained(run_)) names.push_back(name);
  for (const auto& [name, data] : trained(plain)) expected.push_back(name);
  EXPECT_EQ(names, expected);
}

TEST_F(FillRun, MasksThatDoNotFitAreSaidBeforeTheFirstStep) {
  EXPECT_THAT(run_.train({"--dry-run"}).output,
              HasSubstr("inpaint  0 samples by masks of theirs, 10 by masks that are drawn"));
  give_masks();
  EXPECT_THAT(run_.train({"--dry-run"}).output,
              HasSubstr("inpaint  10 samples by masks of theirs, 0 by masks that are drawn"));
  fs::remove(mask("cat_03"));
  EXPECT_THAT(run_.train({"--dry-run"}).output, HasSubstr("images.mask: 1 of 5 images of "));
  write_png(mask("cat_03"), Image{16, 64, std::vector<uint8_t>(16 * 64 * 3, 0)});
  run_.replace("    resolution: 64\n", "    resolution: 64\n    strict: true\n");
  EXPECT_THAT(run_.train({"--dry-run"}).output, HasSubstr("16 x 64 pixels, and its image cat_03.jpg has "));
  half_white(photos_ / "cat_03.jpg");
  run_.replace(fmt::format(", mask: {}}}", mask("cat_01").string()), "}");
  EXPECT_THAT(run_.train({"--dry-run"}).output, HasSubstr("\"one\" has no image `mask`, but others have"));
}

// Without its embedder's term dev is what the same weights without the embedder are.
TEST(FluxGuidance, IsLeftOutOfTrainingWhereItIsBypassed) {
  const TempDir dir;
  const fs::path guided = dir / "guided.safetensors";
  write_small_flux_dev(guided);
  const auto run = [&](const fs::path& denoiser, const std::string& more) {
    ToyRun toy_run;
    toy_run.replace(toy_denoiser().string(), denoiser.string());
    toy_run.set("max_sequence_length", "64");
    toy_run.replace("  seed: 42\n", "  seed: 42\n  timestep_type: sigmoid\n  timestep_shift: 1\n" + more);
    expect_trained(toy_run.set("steps", "2").train());
    return trained(toy_run);
  };
  const Tensors without = run(toy_denoiser(), "");
  EXPECT_EQ(run(guided, "  bypass_guidance_embedding: true\n"), without);
  EXPECT_NE(run(guided, ""), without);
}

}  // namespace
}  // namespace lh::test::flux_test
