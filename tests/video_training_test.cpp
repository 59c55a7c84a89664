// Training a model of videos by the command: clips from video files, samples that move.
#include <gmock/gmock.h>

#include <cmath>

#include "config/load.h"
#include "data/cut_reader.h"
#include "data/dataset.h"
#include "data/sample_file.h"
#include "data/video.h"
#include "encode/read_ahead.h"
#include "support/image_files.h"
#include "support/log.h"
#include "support/ltx2_shapes.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/video_files.h"
#include "support/wan_shapes.h"
#include "train/batch_maker.h"

namespace lh::test::video_training_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

#define SKIP_WITHOUT_VIDEOS() \
  if (!reads_videos()) GTEST_SKIP() << "no FFmpeg: " << why_no_videos()

// ---- which frames a sample has

class Clips : public testing::Test {
 protected:
  Clips() {
    config_.folder_path = dir_.path();
    config_.default_caption = "a film";
    config_.resolution = {32};
    config_.num_frames = 5;
  }
  void put_film(const std::string& name, int64_t frames, AviRate rate = {}) const {
    write_file(dir_ / name, avi(film(frames), rate));
  }
  Dataset open(SizeStep step = {16, 4}) const { return open_dataset({config_}, {}, step); }
  // The numbers of a clip's frames, by the grey that says them.
  std::vector<int64_t> numbers(const Sample& sample) const {
    std::vector<int64_t> found;
    ImageCut whole = sample.cut();
    whole.bucket.width = 64, whole.bucket.height = 48;  // as it is
    for (const Image& frame : CutReader().read(whole))
      for (int64_t number = 0; number < 40; ++number)
        if (frame.rgb == film_frame(number).rgb) found.push_back(number);
    return found;
  }
  TempDir dir_;
  DatasetConfig config_;
};

TEST_F(Clips, AreSpreadOverTheWholeVideo) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 13);
  const Dataset dataset = open();
  ASSERT_EQ(dataset.samples.size(), 1u);
  EXPECT_EQ(dataset.samples[0].bucket.frames, 5);
  EXPECT_EQ(numbers(dataset.samples[0]), (std::vector<int64_t>{0, 3, 6, 9, 12}));
}

// As ai-toolkit has it: 8 frames are taken, and of them those that fill places of the latents.
TEST_F(Clips, LeaveOutWhatFillsNoPlace) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 15);
  config_.num_frames = 8;
  EXPECT_EQ(numbers(open().samples[0]), (std::vector<int64_t>{0, 2, 4, 6, 8}));
}

// From a place that the content decides, so that the cache serves every run.
TEST_F(Clips, FollowEachOtherAtTheirRate) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 30, {.rate = 24});
  config_.shrink_video_to_frames = false;
  config_.fps = 12;
  const std::vector<int64_t> found = numbers(open().samples[0]);
  ASSERT_EQ(found.size(), 5u);
  for (size_t i = 1; i < found.size(); ++i) EXPECT_EQ(found[i] - found[i - 1], 2);
  EXPECT_EQ(numbers(open().samples[0]), found);
}

TEST_F(Clips, OfOneFrameAreTheMiddleOfNoVideoButPictures) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 9);
  write_file(dir_ / "b.png", encode_png(film_frame(0)));
  EXPECT_EQ(open().samples.size(), 1u);  // the video alone
  config_.num_frames = 1;
  const Dataset pictures = open();
  ASSERT_EQ(pictures.samples.size(), 1u);
  EXPECT_EQ(pictures.samples[0].image.path.filename(), "b.png");
  EXPECT_EQ(pictures.samples[0].bucket.frames, 1);
}

TEST_F(Clips, OfVideosThatAreTooShortAreLeftOut) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 9);
  put_film("short.avi", 4);
  EXPECT_EQ(open().samples.size(), 1u);
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("short.avi: 4 frames at 24 a second, and num_frames: 5 needs 5: "
                                                     "use a longer video")));
}

// As musubi-tuner takes them, of a film of 12 frames.
TEST_F(Clips, OfFramesAsTheyFollow) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 12);
  struct Row {
    const char* how;
    int64_t frames, stride, samples;
    double source;
    std::vector<std::pair<int64_t, int64_t>> clips;  // first and last frame
  };
  for (const Row& row :
       {Row{"head", 5, 1, 1, 0, {{0, 4}}}, Row{"head", 1, 1, 1, 0, {{0, 0}}},
        Row{"head", 6, 1, 1, 0, {{0, 4}}},  // of which five fill places
        Row{"chunk", 5, 1, 1, 0, {{0, 4}, {5, 9}}}, Row{"chunk", 9, 1, 1, 0, {{0, 8}}},
        Row{"slide", 5, 3, 1, 0, {{0, 4}, {3, 7}, {6, 10}}}, Row{"uniform", 5, 1, 3, 0, {{0, 4}, {3, 7}, {7, 11}}},
        Row{"uniform", 9, 1, 9, 0, {{0, 8}, {1, 9}, {2, 10}, {3, 11}}},  // each of them once
        Row{"full", 129, 1, 1, 0, {{0, 8}}}, Row{"full", 7, 1, 1, 0, {{0, 4}}}}) {
    SCOPED_TRACE(row.how);
    config_.frame_extraction = row.how;
    config_.num_frames = row.frames;
    config_.frame_stride = row.stride;
    config_.frame_sample = row.samples;
    const Dataset dataset = open();
    std::vector<std::pair<int64_t, int64_t>> clips;
    for (const Sample& sample : dataset.samples) {
      const std::vector<int64_t> found = numbers(sample);
      ASSERT_EQ(found.size(), static_cast<size_t>(sample.bucket.frames));
      for (size_t i = 1; i < found.size(); ++i) EXPECT_EQ(found[i], found[i - 1] + 1);
      clips.emplace_back(found.front(), found.back());
    }
    EXPECT_EQ(clips, row.clips);
  }
}

// One reader for all of a video's clips gives what one for each gives, in whatever order they come, and does not read
// again what it has.
TEST_F(Clips, AreReadOneAfterAnother) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 12);
  put_film("b.avi", 9);
  config_.frame_extraction = "slide";
  config_.frame_stride = 3;
  const Dataset dataset = open();
  ASSERT_EQ(dataset.samples.size(), 5u);  // three clips of a.avi, two of b.avi
  std::vector<ImageCut> cuts;
  for (const Sample& sample : dataset.samples) cuts.push_back(sample.cut());
  std::vector<std::vector<uint8_t>> alone;
  const auto bytes = [](const std::vector<Image>& frames) {
    std::vector<uint8_t> all;
    for (const Image& frame : frames) all.insert(all.end(), frame.rgb.begin(), frame.rgb.end());
    return all;
  };
  for (const ImageCut& cut : cuts) alone.push_back(bytes(CutReader().read(cut)));
  CutReader reader;
  for (const size_t i : {0, 1, 2, 2, 0, 3, 1, 4}) EXPECT_EQ(bytes(reader.read(cuts[i])), alone[i]) << i;
  ImageCut smaller = cuts[4];
  smaller.bucket.width = 16;
  EXPECT_EQ(reader.read(smaller)[0].width, 16);

  std::vector<const ImageCut*> list;
  for (const ImageCut& cut : cuts) list.push_back(&cut);
  ReadAhead ahead(list);
  for (const size_t i : {0, 1, 3, 4, 2}) EXPECT_EQ(bytes(ahead.take(i)), alone[i]) << i;

  // The file was compared when its first clip came, and is open.
  CutReader begun;
  begun.read(cuts[0]);
  fs::remove(dir_ / "a.avi");
  EXPECT_EQ(bytes(begun.read(cuts[1])), alone[1]);
  put_film("a.avi", 13);
  EXPECT_THAT(error_of([&] { CutReader().read(cuts[1]); }), HasSubstr("a.avi: the file was changed"));
  ReadAhead changed(list);
  EXPECT_THAT(error_of([&] { changed.take(0); }), HasSubstr("a.avi: the file was changed"));
  EXPECT_EQ(bytes(changed.take(3)), alone[3]);  // what fails is said where it is taken
}

TEST_F(Clips, OfFramesThatAreKept) {
  SKIP_WITHOUT_VIDEOS();
  put_film("a.avi", 12);
  config_.frame_extraction = "head";
  config_.source_fps = 24;
  config_.fps = 16;
  // 6 is the fourth as the fraction is rounded, not the fifth.
  EXPECT_EQ(numbers(open().samples[0]), (std::vector<int64_t>{0, 2, 3, 5, 7}));
  config_.num_frames = 9;
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("none of the 1 images can be used"));
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("a.avi: 8 frames that are kept, and num_frames: 9 needs 9: ")));
}

TEST_F(Clips, NeedAModelOfVideosAndVideos) {
  put_film("a.avi", 9);
  EXPECT_THAT(error_of([&] { open({16}); }),
              HasSubstr("datasets[0].num_frames: 5: this is a model of images. Put single frames into"));
  config_.num_frames = 1;
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("videos are read with num_frames above 1"));
  fs::remove(dir_ / "a.avi");
  config_.num_frames = 5;
  EXPECT_THAT(error_of([&] { open(); }), HasSubstr("expected videos, for num_frames is 5, found none"));
}

// ---- runs

class VideoTraining : public testing::Test {
 protected:
  VideoTraining() {
    write_small_wan(dir_ / "wan.safetensors");
    fs::create_directories(dir_ / "films");
    for (const char* name : {"a", "b"}) {
      write_file(dir_ / "films" / (std::string(name) + ".avi"), avi(film(*name == 'a' ? 9 : 12)));
      put(dir_ / "films" / (std::string(name) + ".txt"), std::string("a film, ") + name);
    }
  }
  // Files of this model in place of the one that is there; `more` lines of model and sample.
  void use_image_to_video(void (*write)(const fs::path& path) = write_small_wan_i2v,
                          const char* variant = "wan2.2-low-noise") {
    write(dir_ / "wan.safetensors");
    write_file(dir_ / "start.png", encode_png(film_frame(3, 64, 48)));
    more_of_model_ = std::string(", variant: ") + variant;
    more_of_sample_ = fmt::format(", images: {{control: \"{}\"}}", (dir_ / "start.png").string());
  }
  void write_job(const std::string& folder, int64_t steps) const {
    put(dir_ / "job.yaml", fmt::format(R"(
name: clips
training_folder: "{}"
device: cpu
model: {{name_or_path: "{}", tokenizer_path: "{}/{}"{}}}
network: {{type: lora, linear: 4, linear_alpha: 4}}
datasets:
  - folder_path: "{}"
    num_frames: {}
    resolution: [{}]
    flip_x: true
{}train: {{steps: {}, lr: 1e-3, dtype: fp32, noise_offset: 0.05, multires_noise_iterations: 2}}
sample: {{prompts: [a film], {}, width: {}, height: 64, sample_steps: 2, sample_every: 2, sample_at_start: true{}}}
)",
                                       (dir_ / folder).string(), (dir_ / "wan.safetensors").string(), source_dir(),
                                       tokenizer_, more_of_model_, (dir_ / "films").string(), frames_, side_,
                                       more_of_datasets_, steps, sample_clip_, side_, more_of_sample_));
  }
  HostResult train(const std::string& folder, int64_t steps, const std::vector<std::string>& more = {}) const {
    write_job(folder, steps);
    std::vector<std::string> arguments{"train", "--config", (dir_ / "job.yaml").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_host(arguments);
  }
  TempDir dir_;
  int64_t frames_ = 5, side_ = 32;
  std::string tokenizer_ = "share/tokenizers/t5", sample_clip_ = "num_frames: 6, fps: 10";
  std::string more_of_model_, more_of_datasets_, more_of_sample_;
};

struct SmallModel {
  const char* name;
  void (*write)(const fs::path& path);
};
class VideoModels : public VideoTraining, public testing::WithParamInterface<SmallModel> {};

TEST_P(VideoModels, LearnFromClipsAndResumeToTheSameBytes) {
  SKIP_WITHOUT_VIDEOS();
  GetParam().write(dir_ / "wan.safetensors");
  EXPECT_THAT(train("whole", 4, {"--dry-run"}).output, HasSubstr("bucket   5 frames of 32 x 32: 4 per epoch"));
  expect_trained(train("whole", 4));
  expect_trained(train("parts", 2));
  expect_trained(train("parts", 4, {"--resume"}));
  EXPECT_EQ(get(dir_ / "parts/clips/clips.safetensors"), get(dir_ / "whole/clips/clips.safetensors"));
  for (const char* name : {"000000000_0.webp", "000000002_0.webp", "000000004_0.webp"}) {
    const fs::path sample = dir_ / "whole/clips/samples" / name;
    EXPECT_EQ(get(dir_ / "parts/clips/samples" / name), get(sample)) << name;
    const Image first = first_of_sample(sample);
    EXPECT_EQ(first.width, 32);
    EXPECT_EQ(first.height, 64);
  }
  EXPECT_EQ(decode_image(dir_ / "whole/clips/before_after.png").height,
            decode_image(dir_ / "parts/clips/before_after.png").height);
  const HostResult verified = run_host(
      {"verify", (dir_ / "whole/clips/clips.safetensors").string(), "--model", (dir_ / "wan.safetensors").string()});
  EXPECT_EQ(verified.code, 0) << verified.output;
}

INSTANTIATE_TEST_SUITE_P(All, VideoModels,
                         testing::Values(SmallModel{"wan2_1", write_small_wan},
                                         SmallModel{"ti2v_5b", write_small_ti2v}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(VideoTraining, WhatDoesNotFitMayDoSoWithHalfTheFrames) {
  const HostResult refused =
      run_host({"bench", "--model", (dir_ / "wan.safetensors").string(), "--device", "cpu", "--num-frames", "33",
                "--resolution", "256", "--text-length", "8", "--budget", "0.001"});
  EXPECT_EQ(refused.code, 4) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("datasets.num_frames: 17: "));
}

TEST_F(VideoTraining, SampleWritesAnimations) {
  SKIP_WITHOUT_VIDEOS();
  write_job("clip", 1);
  const auto sample = [&](const std::string& out) {
    return run_host(
        {"sample", "--config", (dir_ / "job.yaml").string(), "--num-frames", "5", "--out", (dir_ / out).string()});
  };
  const HostResult made = sample("clip.webp");
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_THAT(get(dir_ / "clip.webp"), AllOf(StartsWith("RIFF"), HasSubstr("ANMF")));
  const HostResult refused = sample("clip.png");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("clips are written as animated WebP. Give a name that ends in .webp"));
}

// Clips begin with their own first frame in training, samples with the picture that they are given.
TEST_F(VideoTraining, ImageToVideoIsShownFirstFrames) {
  SKIP_WITHOUT_VIDEOS();
  use_image_to_video();
  expect_trained(train("whole", 4));
  expect_trained(train("parts", 2));
  expect_trained(train("parts", 4, {"--resume"}));
  EXPECT_EQ(get(dir_ / "parts/clips/clips.safetensors"), get(dir_ / "whole/clips/clips.safetensors"));
  const std::string sample = get(dir_ / "whole/clips/samples/000000004_0.webp");
  EXPECT_EQ(get(dir_ / "parts/clips/samples/000000004_0.webp"), sample);
  write_file(dir_ / "start.png", encode_png(film_frame(30, 64, 48)));
  expect_trained(train("other", 4));
  EXPECT_NE(get(dir_ / "other/clips/samples/000000004_0.webp"), sample);
  EXPECT_EQ(get(dir_ / "other/clips/clips.safetensors"), get(dir_ / "whole/clips/clips.safetensors"));
}

// The same frames and pictures are also seen by an encoder, whose layers are adapted and verified with the others.
TEST_F(VideoTraining, ImageToVideoIsSeenByAnImageEncoder) {
  SKIP_WITHOUT_VIDEOS();
  use_image_to_video(write_small_wan21_i2v, "wan2.1");
  expect_trained(train("whole", 2));
  EXPECT_TRUE(fs::exists(dir_ / "whole/clips/samples/000000002_0.webp"));
  const fs::path trained = dir_ / "whole/clips/clips.safetensors";
  for (const char* key :
       {"lora_unet_blocks_1_cross_attn_k_img.lora_up.weight", "lora_unet_blocks_0_cross_attn_v_img.alpha"})
    EXPECT_THAT(get(trained), HasSubstr(key));
  const HostResult verified = run_host({"verify", trained.string(), "--model", (dir_ / "wan.safetensors").string()});
  EXPECT_EQ(verified.code, 0) << verified.output;
  // Both captions, each with its clip's frame and that mirrored; prompt and negative prompt of the sample.
  int64_t entries = 0;
  for (const auto& file : fs::directory_iterator(dir_ / "whole/cache/text"))
    entries += file.path().extension() == ".safetensors";
  EXPECT_EQ(entries, 2 * 2 + 2);
}

TEST_F(VideoTraining, ImageToVideoNeedsAPictureForSamples) {
  SKIP_WITHOUT_VIDEOS();
  use_image_to_video();
  more_of_sample_ = "";
  const HostResult refused = train("whole", 4);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("sample.images.control: missing"));
}

// Of one folder every clip goes on from its own first frame, of which nothing is learnt; of the others none does, and
// all of them is, as of a photo. The mean over what is learnt is the same of all.
TEST_F(VideoTraining, ClipsMayGoOnFromTheirFirstFrames) {
  SKIP_WITHOUT_VIDEOS();
  use_image_to_video(write_small_ti2v, "wan2.2-ti2v-5b");
  fs::copy(dir_ / "films", dir_ / "others");
  fs::create_directories(dir_ / "photos");
  write_png(dir_ / "photos/a.png", test_picture(32, 32));
  put(dir_ / "photos/a.txt", "a photo");
  more_of_datasets_ = fmt::format(
      "  - {{folder_path: \"{0}/others\", num_frames: 5, resolution: [32], do_i2v: true}}\n"
      "  - {{folder_path: \"{0}/photos\", resolution: [32], do_i2v: true}}\n",
      dir_.path().string());
  EXPECT_THAT(train("whole", 4, {"--dry-run"}).output,
              HasSubstr("clips    2 samples go on from their first frames, of which nothing is learnt"));
  expect_trained(train("whole", 4));
  expect_trained(train("parts", 2));
  expect_trained(train("parts", 4, {"--resume"}));
  EXPECT_EQ(get(dir_ / "parts/clips/clips.safetensors"), get(dir_ / "whole/clips/clips.safetensors"));
  EXPECT_EQ(get(dir_ / "parts/clips/samples/000000004_0.webp"), get(dir_ / "whole/clips/samples/000000004_0.webp"));

  Prepared prepared(built_plugins(), load_config(dir_ / "job.yaml"));
  BatchMaker maker(prepared);
  prepared.text.prepare(prepared.prompts());
  prepared.latents.prepare(prepared.cuts());
  for (const Sample& sample : prepared.dataset.samples) {
    SCOPED_TRACE(sample.image.path);
    const StepInputs made = maker.validation(sample, prepared.validation_shape(sample), 0);
    const HostTensor& weights = made.tensors.at("loss_weight");
    const bool goes_on = sample.image.path.parent_path().filename() == "others";
    const int64_t frames = sample.bucket.frames == 1 ? 1 : 2;
    ASSERT_EQ(weights.desc.shape, (Shape{1, frames, 2, 2, 1}));
    EXPECT_EQ(made.tensors.at("given").as<float>()[0], goes_on ? 1 : 0);
    for (size_t i = 0; i < weights.as<float>().size(); ++i)
      EXPECT_EQ(weights.as<float>()[i], !goes_on ? 1 : i < 4 ? 0 : 2) << i;
  }
}

TEST_F(VideoTraining, ModelsOfTextAreNotShownFirstFrames) {
  SKIP_WITHOUT_VIDEOS();
  more_of_datasets_ = "    do_i2v: true\n";
  EXPECT_THAT(train("whole", 4, {"--dry-run"}).output,
              HasSubstr("datasets[].do_i2v: true has no effect: model family 'wan', wan2.1, is never shown"));
}

TEST_F(VideoTraining, ModelsWithoutSoundSaySo) {
  SKIP_WITHOUT_VIDEOS();
  more_of_datasets_ = "    do_audio: true\n";
  EXPECT_THAT(train("whole", 4, {"--dry-run"}).output,
              HasSubstr("datasets[].do_audio: true has no effect: model family 'wan', wan2.1, makes no sound"));
}

// ---- with sound

class SoundTraining : public VideoTraining {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_VIDEOS();
    write_small_ltx2(dir_ / "wan.safetensors");
    fs::remove(dir_ / "films/a.avi");
    put_film(440);
    frames_ = 9;
    side_ = 64;
    tokenizer_ = "tests/data/gemma_small";
    sample_clip_ = "num_frames: 9, fps: 24";
    more_of_model_ = ", max_sequence_length: 32";
    more_of_datasets_ = "    do_audio: true\n";
  }
  // With a tone of so many waves a second.
  void put_film(double hz) const {
    Sound sound{.rate = 24000};
    for (int64_t i = 0; i < 17'000; ++i)
      sound.samples.insert(sound.samples.end(), 2, 0.5f * static_cast<float>(std::sin(i * hz * 2.6e-4)));
    write_sample(dir_ / "films/a.mp4", {.frames = film(17), .fps = 24, .sound = sound});
  }
};

// Of two videos one has a sound track; batches of clips with and without sound take turns.
TEST_F(SoundTraining, LearnsBothAndResumesToTheSameBytes) {
  const std::string plan = train("whole", 4, {"--dry-run"}).output;
  EXPECT_THAT(
      plan, AllOf(HasSubstr("bucket   9 frames of 64 x 32: 2 per epoch"),
                  HasSubstr("bucket   9 frames with sound of 64 x 32: 2 per epoch"),
                  HasSubstr("sound    of 2 samples; 2 others are of videos without a track, and are trained without")));
  expect_trained(train("whole", 4));
  expect_trained(train("parts", 2));
  expect_trained(train("parts", 4, {"--resume"}));
  const fs::path trained = dir_ / "whole/clips/clips.safetensors", sample = "clips/samples/000000004_0.mp4";
  EXPECT_EQ(get(dir_ / "parts/clips/clips.safetensors"), get(trained));
  EXPECT_EQ(get(dir_ / "parts" / sample), get(dir_ / "whole" / sample));
  const VideoInfo made = video_info(dir_ / "whole" / sample);
  EXPECT_EQ(made.frames, 9);
  EXPECT_TRUE(made.sound);
  EXPECT_THAT(made.comment, HasSubstr("a film"));
  EXPECT_TRUE(fs::exists(dir_ / "whole/clips/before_after.png"));
  const HostResult verified = run_host({"verify", trained.string(), "--model", (dir_ / "wan.safetensors").string()});
  EXPECT_EQ(verified.code, 0) << verified.output;
}

TEST_F(SoundTraining, WhatIsHeardCounts) {
  const auto after = [&](const char* folder) {
    expect_trained(train(folder, 4));
    return get(dir_ / folder / "clips/clips.safetensors");
  };
  const std::string first = after("first");
  put_film(880);
  EXPECT_NE(after("other_tone"), first);
  more_of_datasets_ = "    do_audio: true\n    audio_normalize: true\n";
  EXPECT_NE(after("louder"), first);
}

// A sample's sound depends on the adapter, and that is asked for without a dataset, too.
TEST_F(SoundTraining, SamplesHaveSound) {
  write_job("clip", 1);
  const auto sample = [&](const std::string& out) {
    return run_host({"sample", "--config", (dir_ / "job.yaml").string(), "--out", (dir_ / out).string()});
  };
  const HostResult made = sample("clip.mp4");
  ASSERT_EQ(made.code, 0) << made.output;
  EXPECT_TRUE(video_info(dir_ / "clip.mp4").sound);
  const HostResult shown = run_host({"inspect", (dir_ / "clip.mp4").string()});
  EXPECT_THAT(shown.output,
              AllOf(HasSubstr("9 frames of 64 x 64 pixels, 24 a second, with sound"), HasSubstr("a film")));
  const HostResult refused = sample("clip.webp");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("clips with sound are written as MP4. Give a name that ends in .mp4"));
}

TEST_F(SoundTraining, RefusesWhatIsHeldAgainstTheClipAlone) {
  write_job("whole", 4);
  put(dir_ / "job.yaml", get(dir_ / "job.yaml") + "slider: {positive_prompt: loud, target_class: a film}\n");
  const HostResult refused = run_host({"train", "--config", (dir_ / "job.yaml").string()});
  EXPECT_EQ(refused.code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("datasets[].do_audio: true: slider is held against"));
}

TEST_F(SoundTraining, IsTimed) {
  const HostResult timed =
      run_host({"bench", "--model", (dir_ / "wan.safetensors").string(), "--device", "cpu", "--num-frames", "9",
                "--resolution", "32", "--text-length", "32", "--sound", "true", "--repeat", "2"});
  EXPECT_EQ(timed.code, 0) << timed.output;
}

TEST_F(VideoTraining, ChecksVideos) {
  SKIP_WITHOUT_VIDEOS();
  write_file(dir_ / "films" / "short.avi", avi(film(3)));
  const HostResult result = run_host({"check", (dir_ / "films").string(), "--num-frames", "5", "--resolution", "32",
                                      "--out", (dir_ / "page.html").string()});
  EXPECT_THAT(result.output, AllOf(HasSubstr("5 frames of 32 x 32"), HasSubstr("short.avi")));
}

}  // namespace
}  // namespace lh::test::video_training_test
