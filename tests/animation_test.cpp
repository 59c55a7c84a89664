// Animations that are written, as libwebp reads them.
#include "data/animation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "data/codecs.h"
#include "data/sample_file.h"
#include "support/video_files.h"

#ifdef LORA_WEBP_DEMUX
#include <webp/demux.h>
#include <webp/encode.h>
#endif

namespace lh::test::animation_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Animation, IsRefusedWithoutItsLibrary) {
  if (writes_animations()) GTEST_SKIP() << "built with libwebp";
  try {
    encode_animation(film(2), 8);
    FAIL() << "was encoded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::config);
    EXPECT_THAT(error.what(), HasSubstr("libwebp-dev"));
  }
}

#ifdef LORA_WEBP_DEMUX

struct Played {
  int64_t width = 0, height = 0, loops = -1;
  std::vector<int> ends;  // of frames, in ms
  std::vector<Image> frames;
};

Played play(const FileBytes& file) {
  const WebPData data{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  WebPAnimDecoder* decoder = WebPAnimDecoderNew(&data, &options);
  Played played;
  if (decoder == nullptr) return played;
  WebPAnimInfo info;
  WebPAnimDecoderGetInfo(decoder, &info);
  played.width = info.canvas_width;
  played.height = info.canvas_height;
  played.loops = info.loop_count;
  uint8_t* rgba = nullptr;
  int end = 0;
  while (WebPAnimDecoderGetNext(decoder, &rgba, &end) != 0) {
    Image image{played.width, played.height, {}};
    for (int64_t i = 0; i < played.width * played.height; ++i)
      image.rgb.insert(image.rgb.end(), rgba + 4 * i, rgba + 4 * i + 3);
    played.frames.push_back(std::move(image));
    played.ends.push_back(end);
  }
  WebPAnimDecoderDelete(decoder);
  return played;
}

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) sum += std::abs(int{a.rgb[i]} - int{b.rgb[i]});
  return sum / static_cast<double>(a.rgb.size());
}

// As a picture of its own, of the quality that animations have.
Image still(const Image& image) {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeRGB(image.rgb.data(), static_cast<int>(image.width), static_cast<int>(image.height),
                                    static_cast<int>(image.width * 3), 90, &out);
  const auto* bytes = reinterpret_cast<const std::byte*>(out);
  const Image decoded = decode_image(FileBytes(bytes, bytes + size), "still");
  WebPFree(out);
  return decoded;
}

// A picture whose brightness and place change.
std::vector<Image> moving(int64_t frames) {
  std::vector<Image> all;
  const Image picture = test_picture(80, 64);
  for (int64_t i = 0; i < frames; ++i) {
    all.push_back({64, 48, {}});
    for (int64_t y = 0; y < 48; ++y) {
      const auto row = picture.rgb.begin() + 3 * ((y + i) * 80 + 2 * i);
      all.back().rgb.insert(all.back().rgb.end(), row, row + 3 * 64);
    }
  }
  return all;
}

TEST(Animation, PlaysForeverAtItsRateAndLooksAlike) {
  if (!writes_animations()) GTEST_SKIP() << "built without libwebp-dev";
  const std::vector<Image> frames = moving(7);
  const Played played = play(encode_animation(frames, 24));
  EXPECT_EQ(played.width, 64);
  EXPECT_EQ(played.height, 48);
  EXPECT_EQ(played.loops, 0);
  EXPECT_THAT(played.ends, ElementsAre(42, 83, 125, 167, 208, 250, 292));
  ASSERT_EQ(played.frames.size(), frames.size());
  for (size_t i = 0; i < frames.size(); ++i)
    EXPECT_LE(mean_difference(played.frames[i], frames[i]), 2 * mean_difference(still(frames[i]), frames[i])) << i;
}

TEST(Animation, FramesThatDoNotDifferStay) {
  if (!writes_animations()) GTEST_SKIP() << "built without libwebp-dev";
  const Played played = play(encode_animation(std::vector<Image>{film_frame(0), film_frame(0), film_frame(9)}, 8));
  EXPECT_THAT(played.ends, ElementsAre(250, 375));
}

TEST(Animation, SaysHowItWasMade) {
  if (!writes_animations()) GTEST_SKIP() << "built without libwebp-dev";
  const std::vector<Image> frames = moving(3);
  const std::string text = "it moves \xe6\xb0\xb4\nSteps: 2, Frames: 3";
  const FileBytes file = encode_animation(frames, 8, text);
  EXPECT_EQ(file, encode_animation(frames, 8, text));
  EXPECT_EQ(webp_parameters(file), text);
  EXPECT_EQ(webp_parameters(encode_animation(frames, 8)), "");
  EXPECT_EQ(play(file).ends, play(encode_animation(frames, 8)).ends);
}

TEST(Animation, FramesThatMakeNone) {
  if (!writes_animations()) GTEST_SKIP() << "built without libwebp-dev";
  EXPECT_THROW(encode_animation({}, 8), Error);
  EXPECT_THROW(encode_animation(std::vector{film_frame(0), film_frame(0, 32, 48)}, 8), Error);
  EXPECT_THROW(encode_animation(film(2), 0), Error);
}

TEST(Animation, FilesThatAreThereStay) {
  if (!writes_animations()) GTEST_SKIP() << "built without libwebp-dev";
  const TempFolder folder("lora_animation");
  EXPECT_THROW(write_sample(folder / "no folder/a.webp", {film(2), 8}), Error);
  EXPECT_TRUE(write_new_sample(folder / "a.webp", {film(2), 8}));
  const FileBytes file = read_image_file(folder / "a.webp");
  EXPECT_FALSE(write_new_sample(folder / "a.webp", {film(3), 8}));
  EXPECT_EQ(read_image_file(folder / "a.webp"), file);
  write_sample(folder / "a.webp", {film(3), 8});
  EXPECT_NE(read_image_file(folder / "a.webp"), file);
}

#endif

}  // namespace
}  // namespace lh::test::animation_test
