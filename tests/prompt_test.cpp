// What a text encoder is shown beside a prompt: at which size, at how many places, and what makes two of them the same.
#include "encode/prompt.h"

#include <gmock/gmock.h>

#include "data/image.h"
#include "data/read_cut.h"
#include "data/video.h"
#include "encode/latent_encoding.h"
#include "plugin/trial.h"
#include "support/image_files.h"
#include "support/io_files.h"
#include "support/video_files.h"

namespace lh::test::prompt_test {
namespace {

Recipe seeing() {
  Recipe recipe;
  recipe.pictures["a"] = {.of = "control", .encoder = "reader", .area = 56 * 56, .multiple = 28};
  recipe.pictures["b"] = {.of = "other", .encoder = "reader", .area = 100 * 100, .multiple = 10};
  return recipe;
}

ImageFiles files(const char* control) {
  return {{"control", {.path = "c", .content_hash = control}}, {"other", {.path = "o", .content_hash = "o"}}};
}

TEST(Prompt, PicturesKeepTheirRatioAtTheArea) {
  const std::tuple<Bucket, Bucket, Bucket> rows[] = {{{64, 64}, {56, 56}, {100, 100}},
                                                     {{128, 64}, {84, 28}, {140, 70}},  // 79 x 40 and 141 x 71 pixels
                                                     {{64, 6400}, {28, 560}, {10, 1000}}};  // no side is nothing
  for (const auto& [image, a, b] : rows) {
    const Prompt prompt(seeing(), "a cat", files("c"), {.bucket = image});
    const PictureSizes sizes = picture_sizes(seeing(), prompt);
    EXPECT_EQ(sizes.at("a"), a);
    EXPECT_EQ(sizes.at("b"), b);
    EXPECT_EQ(picture_places(seeing(), "reader", sizes),
              (std::vector<int64_t>{a.width * a.height / (28 * 28), b.width * b.height / 100}));
    EXPECT_TRUE(picture_places(seeing(), "writer", sizes).empty());
  }
  EXPECT_EQ(picture_sizes(seeing(), "a cat").at("a"), (Bucket{56, 56}));
  EXPECT_TRUE(picture_sizes(Recipe{}, "a cat").empty());
}

TEST(Prompt, IsWhatItsTextAndItsPicturesAre) {
  const ImageCut own{.bucket = {64, 64}};
  ImageCut mirrored = own, aside = own, wide = own;
  mirrored.flip.x = true;
  aside.augment.at.x = 0.25;
  wide.bucket.width = 128;
  std::set<std::string> all{Prompt("a cat").identity()};
  EXPECT_EQ(*all.begin(), "a cat");
  for (const ImageCut& cut : {own, mirrored, aside, wide})
    all.insert(Prompt(seeing(), "a cat", files("c"), cut).identity());
  all.insert(Prompt(seeing(), "a dog", files("c"), own).identity());
  all.insert(Prompt(seeing(), "a cat", files("d"), own).identity());
  EXPECT_EQ(all.size(), 7u);
  EXPECT_EQ(all.count(Prompt(seeing(), "a cat", files("c"), own).identity()), 1u);
}

TEST(Prompt, APictureIsTheImageAsItIsCut) {
  const TempDir dir;
  Image image{64, 32, std::vector<uint8_t>(64 * 32 * 3)};
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = i / 3 % 64 < 32 ? 255 : 0;  // white on the left
  write_png(dir / "a.png", image);
  ImageCut cut{.file = {dir / "a.png", content_hash(dir / "a.png"), {64, 32}}, .bucket = {64, 32}};
  const PictureSpec spec{.area = 28 * 14, .multiple = 14};
  const auto at = [&](int64_t x) { return picture(spec, cut).as<float>()[static_cast<size_t>((7 * 28 + x) * 3)]; };
  EXPECT_EQ(picture(spec, cut).desc.shape, (Shape{1, 14, 28, 3}));
  EXPECT_NEAR(at(3), 1, 1e-2);
  EXPECT_NEAR(at(24), -1, 1e-2);
  cut.flip.x = true;
  EXPECT_NEAR(at(3), -1, 1e-2);
  EXPECT_NEAR(at(24), 1, 1e-2);
}

Recipe seeing_first_frames() {
  Recipe recipe;
  recipe.pictures["a"] = {.of = "control", .encoder = "eye", .side = 16, .first_frame = true};
  return recipe;
}

// Both ends of a picture that is not square are there.
TEST(Prompt, ASquareHasTheWholePicture) {
  const TempDir dir;
  Image image{96, 32, std::vector<uint8_t>(96 * 32 * 3)};
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = i / 3 % 96 < 16 || i / 3 % 96 >= 80 ? 255 : 0;
  write_png(dir / "a.png", image);
  const ImageCut own{.file = open_image(dir / "a.png"), .bucket = {96, 32}};
  const Prompt prompt(seeing_first_frames(), "a cat", {}, own);
  const PictureSizes sizes = picture_sizes(seeing_first_frames(), prompt);
  EXPECT_EQ(sizes.at("a"), (Bucket{16, 16}));
  const HostTensor seen = picture(seeing_first_frames().pictures.at("a"), prompt.pictures.at("a"));
  ASSERT_EQ(seen.desc.shape, (Shape{1, 16, 16, 3}));
  const auto at = [&](int64_t x) { return seen.as<float>()[static_cast<size_t>((8 * 16 + x) * 3)]; };
  for (const int64_t x : {0, 15}) EXPECT_GT(at(x), 0.5) << x;  // white is 1/6 of the width, which is 2.7 of 16
  EXPECT_LT(at(8), -0.9);
  const Sizes told = picture_dimensions(sizes, {});  // an encoder that does not read has no row where it begins
  EXPECT_EQ(told, (Sizes{{"a_height", 16}, {"a_width", 16}}));
}

// Of a clip its first frame, and of a sample the image that it is to begin with.
TEST(Prompt, APictureIsWhatAClipBeginsWith) {
  if (!reads_videos()) GTEST_SKIP() << "built without FFmpeg";
  const TempDir dir;
  const Recipe recipe = seeing_first_frames();
  const PictureSpec& spec = recipe.pictures.at("a");
  write_file(dir / "a.avi", avi(film(12)));
  write_png(dir / "start.png", film_frame(7));
  ImageCut own{.file = open_video(dir / "a.avi"), .bucket = {64, 48, 5}, .clip = {.frames = 5, .start = 3}};
  const auto pixels = [&](int64_t frame) {
    const HostTensor all = images_to_tensor(std::array{stretch(film_frame(frame), 16, 16)}, {});
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const auto shown = [&](const ImageFiles& images) {
    const HostTensor all = picture(spec, Prompt(recipe, "a cat", images, own).pictures.at("a"));
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  EXPECT_EQ(shown({}), pixels(3));
  EXPECT_EQ(shown({{"control", open_image(dir / "start.png")}}), pixels(7));
  std::set<std::string> all{Prompt(recipe, "a cat", {}, own).identity()};
  own.clip.start = 4;
  EXPECT_EQ(shown({}), pixels(4));
  all.insert(Prompt(recipe, "a cat", {}, own).identity());
  own.augment.gamma = 2;
  all.insert(Prompt(recipe, "a cat", {}, own).identity());
  EXPECT_NE(shown({}), pixels(4));
  EXPECT_EQ(all.size(), 3u);
}

}  // namespace
}  // namespace lh::test::prompt_test
