// Sound in and out: a clip with two tones is written, read back in parts, and played at other rates.
#include "data/sound.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

#include "core/error.h"
#include "data/clips.h"
#include "data/dataset.h"
#include "data/sample_file.h"
#include "data/video.h"
#include "support/log.h"
#include "support/video_files.h"
#include "support/written_images.h"

namespace lh::test::sound_test {
namespace {

using testing::HasSubstr;

constexpr int64_t fps = 24;
constexpr double left_hz = 440, right_hz = 1000, loud = 0.5;
// AAC at 192 kbit a second leaves an error that is so small beside a tone, as root mean square; one sample too early or
// too late would be an error of 0.06 and more.
constexpr double left_by_compression = 0.05;

// The sample at `index` of a channel whose tone has so many waves a second.
double tone(double hz, int64_t index, int64_t rate) {
  return loud * std::sin(2 * std::numbers::pi * hz * static_cast<double>(index) / static_cast<double>(rate));
}

Sound two_tones(double seconds, int64_t rate) {
  Sound sound{.rate = rate};
  for (int64_t i = 0; i < std::llround(seconds * static_cast<double>(rate)); ++i)
    for (const double hz : {left_hz, right_hz}) sound.samples.push_back(static_cast<float>(tone(hz, i, rate)));
  return sound;
}

class SoundOfVideos : public testing::Test {
 protected:
  void SetUp() override {
    if (!reads_videos()) GTEST_SKIP() << "no FFmpeg: " << why_no_videos();
  }
  // With two tones as long as the clip.
  std::filesystem::path movie(int64_t frames, int64_t rate = 48000, const std::string& name = "a.mp4") const {
    const double seconds = static_cast<double>(frames) / fps;
    write_sample(folder_ / name,
                 {.frames = film(frames), .fps = fps, .parameters = "a film", .sound = two_tones(seconds, rate)});
    return folder_ / name;
  }
  const TempFolder folder_{"lora_sound"};
};

// What differs from both tones played at so many times their speed, beside these, the borders left out.
double off_by(const std::vector<float>& samples, int64_t rate, double speed, int64_t first = 0) {
  const auto count = static_cast<int64_t>(samples.size() / 2), border = rate / 20;
  double squares = 0, of_tones = 0;
  for (int64_t i = border; i < count - border; ++i)
    for (size_t c = 0; c < 2; ++c) {
      const double want = tone((c == 0 ? left_hz : right_hz) * speed, i + first, rate);
      const double off = want - static_cast<double>(samples[static_cast<size_t>(2 * i) + c]);
      squares += off * off;
      of_tones += want * want;
    }
  return std::sqrt(squares / of_tones);
}

TEST_F(SoundOfVideos, IsWrittenWithTheClipAndReadBack) {
  const VideoInfo info = video_info(movie(24));
  EXPECT_EQ(info.frames, 24);
  EXPECT_DOUBLE_EQ(info.fps, fps);
  EXPECT_TRUE(info.sound);
  EXPECT_EQ(info.comment, "a film");
  EXPECT_EQ(first_of_sample(folder_ / "a.mp4").width, 64);
  const std::vector<float> all =
      read_sound(folder_ / "a.mp4", {.start = 0, .seconds = 1, .rate = 48000, .count = 48000});
  ASSERT_EQ(all.size(), 2u * 48000);
  EXPECT_LT(off_by(all, 48000, 1), left_by_compression);
}

TEST_F(SoundOfVideos, OfAPartBeginsWhereThatDoes) {
  const std::vector<float> part = read_sound(movie(48), {.start = 0.75, .seconds = 0.5, .rate = 48000, .count = 24000});
  EXPECT_LT(off_by(part, 48000, 1, 36000), left_by_compression);
}

TEST_F(SoundOfVideos, IsBroughtToTheRateOfTheModel) {
  const std::vector<float> slow =
      read_sound(movie(24, 44100), {.start = 0, .seconds = 1, .rate = 16000, .count = 16000});
  ASSERT_EQ(slow.size(), 2u * 16000);
  EXPECT_LT(off_by(slow, 16000, 1), left_by_compression);
}

// Two seconds in one: twice as fast, and an octave higher.
TEST_F(SoundOfVideos, IsAsFastAsTheClip) {
  const std::vector<float> fast = read_sound(movie(48), {.start = 0, .seconds = 2, .rate = 48000, .count = 48000});
  EXPECT_LT(off_by(fast, 48000, 2), left_by_compression);
}

TEST_F(SoundOfVideos, IsSilentBeyondItsTrack) {
  const std::vector<float> end = read_sound(movie(24), {.start = 0.5, .seconds = 1, .rate = 48000, .count = 48000});
  const auto peak = [&](size_t begin, size_t count) {
    float most = 0;
    for (size_t i = 2 * begin; i < 2 * (begin + count); ++i) most = std::max(most, std::abs(end[i]));
    return static_cast<double>(most);
  };
  EXPECT_GT(peak(0, 20000), loud / 2);
  EXPECT_EQ(peak(28000, 20000), 0);  // a frame of AAC is 1024 samples, and the last one may be longer than the clip
}

TEST_F(SoundOfVideos, CanBeMadeAsLoudAsCanBe) {
  const std::vector<float> all =
      read_sound(movie(24), {.start = 0.25, .seconds = 0.5, .rate = 48000, .count = 24000, .normalized = true});
  float peak = 0;
  for (const float v : all) peak = std::max(peak, std::abs(v));
  EXPECT_NEAR(peak, 0.999, 0.999 * left_by_compression / loud);
}

TEST_F(SoundOfVideos, ThatIsNotThereIsSaid) {
  write_file(folder_ / "b.avi", avi(film(5)));
  EXPECT_FALSE(video_info(folder_ / "b.avi").sound);
  try {
    read_sound(folder_ / "b.avi", {.start = 0, .seconds = 1, .rate = 16000, .count = 16000});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::data);
    EXPECT_THAT(error.what(), HasSubstr("b.avi: there is no sound track in it"));
  }
}

TEST_F(SoundOfVideos, WritesTheSameFileTwice) {
  const auto write = [] { return encode_movie(film(8), fps, two_tones(1.0 / 3, 24000), "how it was made"); };
  EXPECT_EQ(write(), write());
}

// ---- which clips have some

constexpr SoundSpec spec{.channels = 8, .rows = 25, .rate = 16000, .output_rate = 24000, .frame_rate = 24};

TEST_F(SoundOfVideos, IsOfClipsWhoseVideosHaveSome) {
  movie(24);
  write_file(folder_ / "b.avi", avi(film(24)));
  DatasetConfig config;
  config.folder_path = folder_.path();
  config.default_caption = "a film";
  config.resolution = {32};
  config.num_frames = 17;
  config.do_audio = true;
  config.audio_normalize = true;
  const auto open = [&](const std::optional<SoundSpec>& sound) {
    return open_dataset({config}, {.trigger_word = {}, .batch_size = 1, .sound = sound}, {16, 4});
  };
  const Dataset dataset = open(spec);
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[0].bucket.sound, 18);  // 17 / 24 seconds of 25 rows: 17.7
  EXPECT_TRUE(dataset.samples[0].cut().normalize_sound);
  EXPECT_EQ(dataset.samples[1].bucket.sound, 0);
  EXPECT_EQ(dataset.silent, 1);
  EXPECT_NE(dataset.samples[0].kind(), dataset.samples[1].kind());
  // The clip is spread over the whole video.
  const ClipTime time = time_of(dataset.samples[0].cut());
  EXPECT_DOUBLE_EQ(time.start, 0);
  EXPECT_DOUBLE_EQ(time.seconds, 1);
  EXPECT_EQ(open(std::nullopt).samples[0].bucket.sound, 0);
  config.do_audio = false;
  EXPECT_EQ(open(spec).samples[0].bucket.sound, 0);
}

TEST(SoundSpecs, GiveAStillImageNone) {
  EXPECT_EQ(spec.rows_of(1), 0);
  EXPECT_EQ(spec.rows_of(121), 126);
  EXPECT_EQ(spec.samples(126), 80640);
}

}  // namespace
}  // namespace lh::test::sound_test
