// Formats of images that are read where their library is there: GIF, BMP, TIFF, AVIF and HEIC.
#include "data/image_formats.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "core/error.h"
#include "data/dataset.h"
#include "data/read_cut.h"
#include "support/image_files.h"
#include "support/written_images.h"

namespace lh::test::image_formats_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const ImageFormat& format(std::string_view name) {
  return *std::ranges::find(image_formats(), name, &ImageFormat::name);
}

#define NEEDS(name) \
  if (!format(name).read()) GTEST_SKIP() << "built without " << format(name).package

void expect_cut_anywhere_is_an_error(const FileBytes& file) {
  ASSERT_EQ(decode_error(file), "");
  for (size_t i = 0; i < 100; ++i)
    EXPECT_NE(decode_error(FileBytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(file.size() * i / 100))),
              "")
        << i << "%";
  EXPECT_NE(decode_error(FileBytes(file.begin(), file.end() - 1)), "") << "all but a byte";
}

void expect_changed_bytes_never_crash(const FileBytes& good) {
  uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (int i = 0; i < 500; ++i) {
    FileBytes file = good;
    for (uint32_t n = 1 + next() % 4; n > 0; --n) file[next() % file.size()] = static_cast<std::byte>(next() & 0xff);
    decode_error(file);
  }
}

std::vector<uint8_t> colours_of(const std::vector<uint8_t>& numbers) {
  std::vector<uint8_t> rgb;
  for (const uint8_t n : numbers) {
    const auto colour = gif_colour(n);
    rgb.insert(rgb.end(), colour.begin(), colour.end());
  }
  return rgb;
}

TEST(Gif, FirstFrameOnItsCanvas) {
  NEEDS("GIF");
  const auto pixels = numbers(21 * 13);
  const FileBytes whole = gif(21, 13, {{.width = 21, .height = 13, .pixels = pixels}});
  EXPECT_EQ(decode_image(whole, "x").rgb, colours_of(pixels));
  EXPECT_FALSE(image_is_animated(whole, "x"));
  expect_cut_anywhere_is_an_error(whole);
  expect_changed_bytes_never_crash(whole);

  // Rows of four passes.
  std::vector<uint8_t> stored;
  for (const auto& [first, step] : {std::pair{0, 8}, {4, 8}, {2, 4}, {1, 2}})
    for (int y = first; y < 13; y += step)
      stored.insert(stored.end(), pixels.begin() + 21 * y, pixels.begin() + 21 * (y + 1));
  EXPECT_EQ(decode_image(gif(21, 13, {{.width = 21, .height = 13, .pixels = stored, .interlaced = true}}), "x").rgb,
            colours_of(pixels));

  // What the frame does not cover, and its transparent colour, are white and transparent.
  const Frame small{.left = 1, .top = 1, .width = 2, .height = 1, .pixels = {3, 9}, .transparent = 9};
  const FileBytes partly = gif(4, 2, {small});
  std::vector<uint8_t> want(4 * 2 * 3, 255), opaque(4 * 2 * 3, 0);
  std::ranges::copy(gif_colour(3), want.begin() + 3 * 5);
  std::fill_n(opaque.begin() + 3 * 5, 3, 255);
  EXPECT_EQ(decode_image(partly, "x").rgb, want);
  EXPECT_EQ(decode_alpha(partly, "x").rgb, opaque);

  const FileBytes film = gif(4, 2, {small, small});
  EXPECT_TRUE(image_is_animated(film, "x"));
  EXPECT_EQ(decode_image(film, "x").rgb, want);
}

TEST(Gif, DamagedOnes) {
  NEEDS("GIF");
  EXPECT_THAT(decode_error(gif(4, 2, {{.left = 3, .width = 2, .height = 1, .pixels = {1, 2}}})),
              HasSubstr("its first frame, 2 x 1 at 3, 0, lies outside its canvas of 4 x 2"));
  EXPECT_THAT(decode_error(gif(2, 1, {{.width = 2, .height = 1, .pixels = {1, 4}}}, 4)), HasSubstr("colour 4 of 4"));
  EXPECT_THAT(decode_error(gif(4, 2, {})), HasSubstr("without a frame"));
  EXPECT_THAT(decode_error(gif(30000, 2, {{.width = 1, .height = 1, .pixels = {1}}})),
              HasSubstr("30000 x 2 pixels exceed"));
}

TEST(Bmp, DepthsPalettesAndRowOrder) {
  NEEDS("BMP");
  // Rows from below, each of whole words, blue first.
  const FileBytes plain = bmp(2, 2, 24, {1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9, 10, 11, 12, 0, 0});
  EXPECT_EQ(decode_image(plain, "x").rgb, (std::vector<uint8_t>{9, 8, 7, 12, 11, 10, 3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(decode_image(bmp(2, -2, 24, {7, 8, 9, 10, 11, 12, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0}), "x").rgb,
            decode_image(plain, "x").rgb);
  EXPECT_EQ(decode_image(bmp(2, 1, 8, {1, 0, 0, 0}, {10, 20, 30, 0, 40, 50, 60, 0}), "x").rgb,
            (std::vector<uint8_t>{60, 50, 40, 30, 20, 10}));
  expect_cut_anywhere_is_an_error(plain);
  expect_changed_bytes_never_crash(plain);
  EXPECT_THAT(decode_error(bmp(20000, 1, 24, {})), HasSubstr("20000 x 1 pixels exceed"));
  EXPECT_THAT(decode_error(bmp(4, 4, 24, {1, 2, 3})), HasSubstr("the file ends too early"));
}

TEST(Bmp, ColoursThatThePaletteLacks) {
  NEEDS("BMP");
  const std::vector<uint8_t> two{10, 20, 30, 0, 40, 50, 60, 0};
  const auto of_row = [&](int64_t bits, uint8_t pixels) { return bmp(2, 1, bits, {pixels, 0, 0, 0}, two); };
  EXPECT_THAT(decode_error(of_row(8, 2)), HasSubstr("a pixel has a colour that the palette lacks"));
  EXPECT_THAT(decode_error(of_row(4, 0x12)), HasSubstr("a pixel has a colour that the palette lacks"));
  EXPECT_EQ(decode_image(of_row(4, 0x10), "x").rgb, (std::vector<uint8_t>{60, 50, 40, 30, 20, 10}));
  EXPECT_EQ(decode_image(of_row(1, 0x80), "x").rgb, (std::vector<uint8_t>{60, 50, 40, 30, 20, 10}));
  FileBytes old;  // of OS/2: sizes in two bytes, three bytes for a colour
  for (const int byte : {66, 77, 34, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 12, 0, 0, 0,
                         2,  0,  1,  0, 1, 0, 1, 0, 1, 2, 3,  4, 5, 6, 64, 0, 0, 0})
    old.push_back(std::byte(byte));
  EXPECT_THAT(decode_error(old), HasSubstr("a palette of OS/2 is not read"));
}

TEST(Tiff, ColoursDepthsAlphaAndOrientation) {
  NEEDS("TIFF");
  const Image image = test_picture(19, 11);
  const FileBytes plain = tiff(19, 11, image.rgb);
  EXPECT_EQ(decode_image(plain, "x").rgb, image.rgb);
  expect_cut_anywhere_is_an_error(plain);
  expect_changed_bytes_never_crash(plain);
  EXPECT_EQ(decode_image(tiff(2, 1, {7, 200}, {.channels = 1}), "x").rgb,
            (std::vector<uint8_t>{7, 7, 7, 200, 200, 200}));
  // 16 bits, as the file has them: 0x8000 is 128 of 255.
  EXPECT_EQ(decode_image(tiff(1, 1, {0, 0x80, 0xff, 0xff, 0, 0}, {.bits = 16}), "x").rgb,
            (std::vector<uint8_t>{128, 255, 0}));
  // Half opaque, stored as it is and multiplied: 100 * 128 / 255 is 50, and white adds 127.
  for (const auto& [extra, stored] : {std::pair<int64_t, uint8_t>{2, 100}, {1, 50}}) {
    const FileBytes half = tiff(1, 1, {stored, stored, stored, 128}, {.channels = 4, .extra = extra});
    EXPECT_EQ(decode_image(half, "x").rgb, (std::vector<uint8_t>{177, 177, 177})) << extra;
    EXPECT_EQ(decode_alpha(half, "x").rgb[0], 128);
  }
  // A quarter turn to the right: the left column becomes the top row.
  const Image turned = decode_image(tiff(2, 1, {1, 2, 3, 4, 5, 6}, {.orientation = 6}), "x");
  EXPECT_EQ(turned.width, 1);
  EXPECT_EQ(turned.rgb, (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(image_size(tiff(2, 1, {1, 2, 3, 4, 5, 6}, {.orientation = 6}), "x").height, 2);
  EXPECT_THAT(decode_error(tiff(20000, 1, {1, 2, 3})), HasSubstr("20000 x 1 pixels exceed"));
}

int64_t largest_difference(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height) return 999;
  int64_t largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) largest = std::max<int64_t>(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

// Quality 95 of both encoders leaves a picture as smooth as this within 8 of 255.
TEST(Heif, PicturesOfBothKinds) {
  for (const char* kind : {"avif", "heic"}) {
    if (!format(kind == std::string("avif") ? "AVIF" : "HEIC").read()) continue;
    SCOPED_TRACE(kind);
    const FileBytes file = picture(std::string("picture.") + kind);
    EXPECT_LE(largest_difference(decode_image(file, "x"), test_picture(64, 48)), 8);
    expect_cut_anywhere_is_an_error(file);
    expect_changed_bytes_never_crash(file);
  }
}

TEST(Heif, TurnsAndAlpha) {
  NEEDS("HEIC");
  const Image turned = decode_image(picture("turned.heic"), "x"), plain = test_picture(64, 48);
  ASSERT_EQ(turned.width, 48);
  ASSERT_EQ(turned.height, 64);
  Image upright{48, 64, std::vector<uint8_t>(plain.rgb.size())};
  for (int64_t y = 0; y < 48; ++y)
    for (int64_t x = 0; x < 64; ++x)
      for (int64_t c = 0; c < 3; ++c)
        upright.rgb[static_cast<size_t>((x * 48 + 47 - y) * 3 + c)] =
            plain.rgb[static_cast<size_t>((y * 64 + x) * 3 + c)];
  EXPECT_LE(largest_difference(turned, upright), 8);
  NEEDS("AVIF");
  const Image alpha = decode_alpha(picture("alpha.avif"), "x"), over = decode_image(picture("alpha.avif"), "x");
  EXPECT_GE(alpha.rgb[3 * 8], 250);
  EXPECT_LE(alpha.rgb[3 * 60], 5);
  EXPECT_GE(over.rgb[3 * 60], 250) << "white where it is transparent";
}

TEST(ImageFormats, AreToldByTheirFirstBytes) {
  EXPECT_EQ(format_of(gif(1, 1, {}))->name, "GIF");
  EXPECT_EQ(format_of(bmp(1, 1, 24, {}))->name, "BMP");
  EXPECT_EQ(format_of(tiff(1, 1, {}))->name, "TIFF");
  EXPECT_EQ(format_of(picture("picture.avif"))->name, "AVIF");
  EXPECT_EQ(format_of(picture("picture.heic"))->name, "HEIC");
  EXPECT_EQ(format_of(FileBytes(1000)), nullptr);
  EXPECT_THAT(decode_error(Written().text("\xff\x0a...........").file()), HasSubstr("found a JPEG XL file"));
  // A format is in one of the two lists, or has no reader at all.
  for (const ImageFormat& f : image_formats())
    EXPECT_EQ(formats_that_are_read().find(f.name) != std::string::npos, f.read()) << f.name;
  EXPECT_EQ(formats_without_library().find("WebP") != std::string::npos, !format("WebP").read());
}

TEST(ImageFormats, AFolderOfAllKinds) {
  NEEDS("GIF");
  const TempFolder folder("lora_formats");
  const auto pixels = numbers(64 * 64);
  const Frame frame{.width = 64, .height = 64, .pixels = pixels};
  write_file(folder / "film.GIF", gif(64, 64, {frame, frame}));
  write_file(folder / "still.gif", gif(64, 64, {frame}));
  write_file(folder / "odd.jxl", Written().text("\xff\x0a").file());
  DatasetConfig config;
  config.folder_path = folder.path();
  config.default_caption = "a";
  config.resolution = {64};
  const Dataset dataset = open_dataset({config}, {}, 16);
  EXPECT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.animated, std::vector<std::string>{"film.GIF"});
  EXPECT_EQ(dataset.not_read, std::vector<std::string>{"odd.jxl"});
  EXPECT_EQ(read_cut(dataset.samples[1].cut()).rgb, colours_of(pixels));
}

}  // namespace
}  // namespace lh::test::image_formats_test
