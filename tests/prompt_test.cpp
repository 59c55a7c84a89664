// What a text encoder is shown beside a prompt: at which size, at how many places, and what makes two of them the same.
#include "encode/prompt.h"

#include <gmock/gmock.h>

#include "data/image.h"
#include "plugin/trial.h"
#include "support/image_files.h"
#include "support/io_files.h"

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
  const auto at = [&](int64_t x) { return picture(cut, {28, 14}).as<float>()[static_cast<size_t>((7 * 28 + x) * 3)]; };
  EXPECT_EQ(picture(cut, {28, 14}).desc.shape, (Shape{1, 14, 28, 3}));
  EXPECT_NEAR(at(3), 1, 1e-2);
  EXPECT_NEAR(at(24), -1, 1e-2);
  cut.flip.x = true;
  EXPECT_NEAR(at(3), -1, 1e-2);
  EXPECT_NEAR(at(24), 1, 1e-2);
}

}  // namespace
}  // namespace lh::test::prompt_test
