// Image files: every kind that is accepted, every kind of damage that must be refused, and writing.
#include "data/image.h"

#include <gmock/gmock.h>
#include <png.h>
#include <zlib.h>

#include <cstdlib>
#include <ctime>
#include <string>

#ifdef LORA_WEBP
#include <webp/encode.h>
#endif

#include "core/error.h"
#include "data/codecs.h"
#include "support/image_files.h"

namespace lh::image_test {
namespace {

using test::decode_error;
using test::encode_jpeg;
using test::encode_png_as;
using test::exif_tiff;
using test::FileBytes;
using test::test_picture;
using testing::HasSubstr;

int64_t largest_difference(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height || a.rgb.size() != b.rgb.size()) return 999;
  int64_t largest = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) largest = std::max<int64_t>(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

void expect_error(const FileBytes& file, const std::string& part) {
  const std::string text = decode_error(file);
  EXPECT_NE(text.find(part), std::string::npos) << "expected \"" << part << "\", found \"" << text << '"';
}

std::vector<uint8_t> app1(std::vector<uint8_t> tiff) {
  const std::vector<uint8_t> mark = {'E', 'x', 'i', 'f', 0, 0};
  tiff.insert(tiff.begin(), mark.begin(), mark.end());
  return tiff;
}

FileBytes without_end(FileBytes file, size_t keep) {
  file.resize(keep);
  return file;
}

TEST(Jpeg, ColourGreyAndProgressive) {
  const Image image = test_picture(61, 43);
  EXPECT_LE(largest_difference(decode_image(encode_jpeg(61, 43, image.rgb), "x"), image), 8);
  EXPECT_LE(largest_difference(decode_image(encode_jpeg(61, 43, image.rgb, {.progressive = true}), "x"), image), 8);
  std::vector<uint8_t> grey;
  Image expected{61, 43, {}};
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    grey.push_back(image.rgb[i]);
    expected.rgb.insert(expected.rgb.end(), 3, image.rgb[i]);
  }
  EXPECT_LE(largest_difference(decode_image(encode_jpeg(61, 43, grey, {.components = 1}), "x"), expected), 8);
}

TEST(Jpeg, CmykAndYcckAreInverted) {
  for (const bool ycck : {false, true}) {
    std::vector<uint8_t> cmyk;
    Image expected{32, 32, {}};
    for (int i = 0; i < 32 * 32; ++i) {
      cmyk.insert(cmyk.end(), {200, 100, 50, 128});
      expected.rgb.insert(expected.rgb.end(), {100, 50, 25});
    }
    const auto file = encode_jpeg(32, 32, cmyk, {.components = 4, .ycck = ycck});
    EXPECT_LE(largest_difference(decode_image(file, "x"), expected), 4) << ycck;
  }
}

// Where the stored corner (0, 0) and its right neighbour go, by the EXIF standard's figure.
Image upright(const Image& stored, int orientation) {
  static constexpr int origin_x[] = {0, 0, 1, 1, 0, 0, 1, 1, 0}, origin_y[] = {0, 0, 0, 1, 1, 0, 0, 1, 1};
  const bool turned = orientation >= 5;
  Image out{turned ? stored.height : stored.width, turned ? stored.width : stored.height,
            std::vector<uint8_t>(stored.rgb.size())};
  for (int64_t y = 0; y < stored.height; ++y)
    for (int64_t x = 0; x < stored.width; ++x) {
      int64_t to_x = turned ? y : x, to_y = turned ? x : y;
      if (origin_x[orientation] == 1) to_x = out.width - 1 - to_x;
      if (origin_y[orientation] == 1) to_y = out.height - 1 - to_y;
      for (int64_t c = 0; c < 3; ++c)
        out.rgb[static_cast<size_t>((to_y * out.width + to_x) * 3 + c)] =
            stored.rgb[static_cast<size_t>((y * stored.width + x) * 3 + c)];
    }
  return out;
}

TEST(Exif, AllOrientationsInJpegAndPng) {
  const Image image = test_picture(40, 24);
  for (int o = 1; o <= 8; ++o) {
    for (const bool little : {false, true}) {
      const FileBytes jpeg = encode_jpeg(40, 24, image.rgb, {.exif = app1(exif_tiff(o, little))});
      const Image plain = decode_image(encode_jpeg(40, 24, image.rgb), "x");
      EXPECT_EQ(largest_difference(decode_image(jpeg, "x"), upright(plain, o)), 0) << o;
      const ImageSize size = image_size(jpeg, "x");
      EXPECT_EQ(size.width, o >= 5 ? 24 : 40);
      EXPECT_EQ(size.height, o >= 5 ? 40 : 24);
      {
        test::PngOptions options{PNG_COLOR_TYPE_RGB, 8};
        options.exif = exif_tiff(o, little);
        const FileBytes png = encode_png_as(40, 24, 120, image.rgb, options);
        EXPECT_EQ(largest_difference(decode_image(png, "x"), upright(image, o)), 0) << o;
      }
    }
  }
}

TEST(Exif, DamagedBlocksMeanUpright) {
  const std::vector<uint8_t> good = exif_tiff(6, true);
  EXPECT_EQ(exif_orientation(std::as_bytes(std::span(good))), 6);
  for (size_t keep = 0; keep < 20; ++keep) {
    const std::vector<uint8_t> cut(good.begin(), good.begin() + static_cast<int64_t>(keep));
    EXPECT_EQ(exif_orientation(std::as_bytes(std::span(cut))), 1) << keep;
  }
  for (const auto& [at, value] : std::vector<std::pair<size_t, uint8_t>>{
           {0, 'X'}, {1, 'M'}, {2, 43}, {4, 0xff}, {7, 0xff}, {10, 0x13}, {12, 7}, {14, 2}, {18, 0}, {18, 9}}) {
    std::vector<uint8_t> bad = good;
    bad[at] = value;
    EXPECT_EQ(exif_orientation(std::as_bytes(std::span(bad))), 1) << at;
  }
}

TEST(Png, EveryKind) {
  // 16 bits: rounded, not cut.
  EXPECT_EQ(decode_image(encode_png_as(2, 1, 4, {0x80, 0xff, 0x00, 0x7f}, {PNG_COLOR_TYPE_GRAY, 16}), "x").rgb,
            (std::vector<uint8_t>{128, 128, 128, 0, 0, 0}));
  EXPECT_EQ(
      decode_image(encode_png_as(1, 1, 6, {0x12, 0x12, 0xff, 0xff, 0x00, 0x00}, {PNG_COLOR_TYPE_RGB, 16}), "x").rgb,
      (std::vector<uint8_t>{0x12, 0xff, 0}));
  // Grey of few bits: 1 bit and 4 bits.
  EXPECT_EQ(decode_image(encode_png_as(2, 1, 1, {0x40}, {PNG_COLOR_TYPE_GRAY, 1}), "x").rgb,
            (std::vector<uint8_t>{0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(decode_image(encode_png_as(2, 1, 1, {0x3f}, {PNG_COLOR_TYPE_GRAY, 4}), "x").rgb,
            (std::vector<uint8_t>{51, 51, 51, 255, 255, 255}));
  // Alpha over white.
  EXPECT_EQ(decode_image(encode_png_as(3, 1, 12, {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 200, 128},
                                       {PNG_COLOR_TYPE_RGB_ALPHA, 8}),
                         "x")
                .rgb,
            (std::vector<uint8_t>{10, 20, 30, 255, 255, 255, 127, 177, 227}));
  EXPECT_EQ(decode_image(encode_png_as(2, 1, 4, {7, 255, 7, 0}, {PNG_COLOR_TYPE_GRAY_ALPHA, 8}), "x").rgb,
            (std::vector<uint8_t>{7, 7, 7, 255, 255, 255}));
  // Palette with a transparent entry; a transparent colour.
  test::PngOptions palette{PNG_COLOR_TYPE_PALETTE, 8};
  palette.palette = {1, 2, 3, 40, 50, 60, 7, 8, 9};
  palette.palette_alpha = {255, 0};
  EXPECT_EQ(decode_image(encode_png_as(3, 1, 3, {0, 1, 2}, palette), "x").rgb,
            (std::vector<uint8_t>{1, 2, 3, 255, 255, 255, 7, 8, 9}));
  test::PngOptions keyed{PNG_COLOR_TYPE_RGB, 8};
  keyed.transparent_colour = {1, 2, 3};
  EXPECT_EQ(decode_image(encode_png_as(2, 1, 6, {1, 2, 3, 4, 5, 6}, keyed), "x").rgb,
            (std::vector<uint8_t>{255, 255, 255, 4, 5, 6}));
  // Interlaced.
  const Image image = test_picture(37, 29);
  test::PngOptions interlaced{PNG_COLOR_TYPE_RGB, 8};
  interlaced.interlaced = true;
  EXPECT_EQ(largest_difference(decode_image(encode_png_as(37, 29, 111, image.rgb, interlaced), "x"), image), 0);
}

// Texts that unpack to a thousand times their size are not unpacked.
TEST(Png, CompressedTextsAreNotRead) {
  const std::vector<Bytef> plain(7 << 20, 'a');
  uLongf size = compressBound(plain.size());
  std::vector<Bytef> packed(size);
  ASSERT_EQ(compress2(packed.data(), &size, plain.data(), plain.size(), 9), Z_OK);
  std::string chunk = "zTXtkey";
  chunk += std::string(2, '\0') + std::string(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(size));
  const auto number = [](uint32_t v) {
    return std::string{static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
                       static_cast<char>(v)};
  };
  const auto crc =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
  const std::string whole = number(static_cast<uint32_t>(chunk.size() - 4)) + chunk + number(crc);
  std::string texts;
  while (texts.size() < (1 << 20)) texts += whole;
  const Image image = test_picture(33, 17);
  FileBytes file = encode_png(image);
  const auto* bytes = reinterpret_cast<const std::byte*>(texts.data());
  file.insert(file.begin() + 33, bytes, bytes + texts.size());  // behind the header chunk
  const std::clock_t begin = std::clock();                      // the processor's: the machine may be busy
  EXPECT_EQ(largest_difference(decode_image(file, "x"), image), 0);
  EXPECT_LT(std::clock() - begin, 1 * CLOCKS_PER_SEC);
}

TEST(Png, WritesWhatItReads) {
  const test::TempFolder folder("lora_png");
  const Image image = test_picture(33, 17);
  write_png(folder / "a.png", image);
  EXPECT_EQ(largest_difference(decode_image(folder / "a.png"), image), 0);
  const ImageSize size = image_size(folder / "a.png");
  EXPECT_EQ(size.width, 33);
  EXPECT_EQ(size.height, 17);
  EXPECT_EQ(encode_png(image), encode_png(image));
  EXPECT_THROW(encode_png(Image{2, 2, {1, 2, 3}}), Error);
  EXPECT_THROW(encode_png(Image{}), Error);
}

std::string as_text(const FileBytes& file) { return {reinterpret_cast<const char*>(file.data()), file.size()}; }

TEST(Png, SaysHowItWasMade) {
  const Image image = test_picture(33, 17);
  const std::string plain = "a photo\nNegative prompt: blurry\nSteps: 20, Seed: 1";
  const std::string wide = "ein M\xc3\xa4rchen \xe6\xb0\xb4\xe5\xbd\xa9 \xf0\x9f\x90\x88\nSteps: 20";
  const FileBytes in_ascii = encode_png(image, plain), in_utf8 = encode_png(image, wide);
  // As the specification has the two kinds: key, 0, Latin-1; key, 0, not compressed, method, language, key, UTF-8.
  EXPECT_THAT(as_text(in_ascii), HasSubstr(std::string("tEXtparameters\0", 15) + plain));
  EXPECT_THAT(as_text(in_utf8), HasSubstr(std::string("iTXtparameters\0\0\0\0\0", 19) + wide));
  EXPECT_EQ(png_parameters(in_ascii), plain);
  EXPECT_EQ(png_parameters(in_utf8), wide);
  EXPECT_EQ(png_parameters(encode_png(image)), "");
  for (const FileBytes& file : {in_ascii, in_utf8}) EXPECT_EQ(largest_difference(decode_image(file, "x"), image), 0);
  EXPECT_EQ(encode_png(image, wide), in_utf8);
}

FileBytes with_chunk(const FileBytes& png, const std::string& chunk) {
  const auto number = [](uint32_t v) {
    return std::string{static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
                       static_cast<char>(v)};
  };
  const auto crc =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
  const std::string whole = number(static_cast<uint32_t>(chunk.size() - 4)) + chunk + number(crc);
  FileBytes file = png;
  const auto* bytes = reinterpret_cast<const std::byte*>(whole.data());
  file.insert(file.begin() + 33, bytes, bytes + whole.size());  // behind the header chunk
  return file;
}

TEST(Png, TextsOfOtherPrograms) {
  const FileBytes png = encode_png(test_picture(4, 4));
  const std::string end(1, '\0');
  EXPECT_EQ(png_parameters(with_chunk(png, "tEXtparameters" + end + "caf\xe9")), "caf\xc3\xa9");
  EXPECT_EQ(png_parameters(with_chunk(png, "tEXtprompt" + end + "{}")), "");
  EXPECT_EQ(png_parameters(with_chunk(png, "iTXtparameters" + std::string(5, '\0') + "a\xff")), "a\xef\xbf\xbd");
  const auto packed = [&](const std::string& plain) {
    uLongf size = compressBound(plain.size());
    std::string out(size, '\0');
    compress2(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(plain.data()), plain.size(),
              9);
    return "zTXtparameters" + std::string(2, '\0') + out.substr(0, size);
  };
  EXPECT_EQ(png_parameters(with_chunk(png, packed("a photo"))), "a photo");
  EXPECT_EQ(png_parameters(with_chunk(png, packed(std::string(64 << 20, 'a')))), "");
  for (size_t length = 0; length < png.size(); ++length) png_parameters(FileBytes(png.begin(), png.begin() + length));
}

TEST(Exif, CommentsOfPrograms) {
  const std::string wide = "M\xc3\xa4rchen \xf0\x9f\x90\x88\nSteps: 2";
  const FileBytes block = exif_with_comment(wide);
  EXPECT_EQ(exif_comment(block), wide);
  FileBytes marked;
  for (const char c : std::string("Exif\0\0", 6)) marked.push_back(static_cast<std::byte>(c));
  marked.insert(marked.end(), block.begin(), block.end());
  EXPECT_EQ(exif_comment(marked), wide);
  EXPECT_EQ(exif_orientation(block), 1);
  for (size_t length = 0; length < block.size(); ++length)
    EXPECT_EQ(exif_comment(Bytes(block).first(length)), "") << length;
  // The other order of bytes, and a comment that says it is ASCII.
  const auto little = [](std::string_view comment) {
    std::string out(
        "II*\0\x08\0\0\0"
        "\1\0\x69\x87\4\0\1\0\0\0\x1a\0\0\0\0\0\0\0",
        26);
    out += std::string("\1\0\x86\x92\7\0", 6) + static_cast<char>(comment.size()) + std::string(3, '\0') +
           std::string("\x2c\0\0\0\0\0\0\0", 8);
    out += comment;
    const auto* bytes = reinterpret_cast<const std::byte*>(out.data());
    return FileBytes(bytes, bytes + out.size());
  };
  EXPECT_EQ(exif_comment(little(std::string_view("UNICODE\0a\0\xe4\0", 12))), "a\xc3\xa4");
  EXPECT_EQ(exif_comment(little(std::string_view("ASCII\0\0\0a photo", 15))), "a photo");
  const FileBytes exif = little(std::string_view("ASCII\0\0\0a photo", 15));
  std::vector<uint8_t> app1{'E', 'x', 'i', 'f', 0, 0};
  for (const std::byte b : exif) app1.push_back(std::to_integer<uint8_t>(b));
  EXPECT_EQ(jpeg_parameters(encode_jpeg(16, 16, test_picture(16, 16).rgb, {.exif = app1})), "a photo");
}

TEST(DamagedImages, CutAnywhereIsAnError) {
  const Image image = test_picture(64, 48);
  test::PngOptions interlaced{PNG_COLOR_TYPE_RGB, 8};
  interlaced.interlaced = true;
  for (const FileBytes& file : {encode_jpeg(64, 48, image.rgb), encode_jpeg(64, 48, image.rgb, {.progressive = true}),
                                encode_png(image), encode_png_as(64, 48, 192, image.rgb, interlaced)}) {
    ASSERT_EQ(decode_error(file), "");
    for (size_t i = 0; i < 100; ++i) EXPECT_NE(decode_error(without_end(file, file.size() * i / 100)), "") << i;
    EXPECT_NE(decode_error(without_end(file, file.size() - 1)), "");
  }
}

TEST(DamagedImages, ChangedBytesNeverCrash) {
  const Image image = test_picture(48, 32);
  uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (const FileBytes& good :
       {encode_jpeg(48, 32, image.rgb, {.exif = app1(exif_tiff(6, true))}), encode_png(image)}) {
    for (int i = 0; i < 500; ++i) {
      FileBytes file = good;
      for (uint32_t n = 1 + next() % 4; n > 0; --n) file[next() % file.size()] = static_cast<std::byte>(next() & 0xff);
      decode_error(file);
    }
  }
}

TEST(DamagedImages, BombsForeignAndEmptyFiles) {
  FileBytes png = encode_png(test_picture(4, 4));
  for (size_t i = 16; i < 24; ++i) png[i] = std::byte{i % 4 == 1 ? uint8_t{1} : uint8_t{0}};  // 65536 x 65536
  expect_error(png, "65536 x 65536 pixels exceed");
  FileBytes jpeg = encode_jpeg(16, 16, test_picture(16, 16).rgb);
  for (size_t i = 0; i + 8 < jpeg.size(); ++i) {
    if (jpeg[i] != std::byte{0xff} || jpeg[i + 1] != std::byte{0xc0}) continue;
    for (size_t k = 5; k < 9; ++k) jpeg[i + k] = std::byte{0xee};  // height and width
    break;
  }
  expect_error(jpeg, "61166 x 61166 pixels exceed");
  expect_error({}, "empty");
  const auto text = [](std::string_view s) {
    FileBytes bytes;
    for (const char c : s) bytes.push_back(static_cast<std::byte>(c));
    return bytes;
  };
  expect_error(text("\xff\x0a......"), "found a JPEG XL file");
  expect_error(text("<html></html>"), "found a text file");
  expect_error(text("\1\2"), "begins with 01 02");
  expect_error(FileBytes(1000), "an unknown file");
}

TEST(ImageFile, ExtensionDoesNotMatterAndOddPathsAreErrors) {
  const test::TempFolder folder("lora_image");
  const Image image = test_picture(8, 8);
  test::write_file(folder / "really_png.jpg", encode_png(image));
  EXPECT_EQ(largest_difference(decode_image(folder / "really_png.jpg"), image), 0);
  EXPECT_THROW(decode_image(folder / "absent.png"), Error);
  EXPECT_THROW(decode_image(folder.path()), Error);
  EXPECT_THROW(image_size(std::filesystem::path("/dev/zero")), Error);
}

#ifdef LORA_WEBP

FileBytes webp_of(const Image& image) {
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeLosslessRGB(image.rgb.data(), static_cast<int>(image.width),
                                            static_cast<int>(image.height), static_cast<int>(image.width * 3), &out);
  const auto* first = reinterpret_cast<const std::byte*>(out);
  FileBytes bytes(first, first + size);
  WebPFree(out);
  return bytes;
}

FileBytes riff(std::vector<uint8_t> vp8x_flags_and_size, const FileBytes& chunks) {
  FileBytes file;
  const auto add = [&](std::string_view s) {
    for (const char c : s) file.push_back(static_cast<std::byte>(c));
  };
  const size_t size = 4 + 8 + vp8x_flags_and_size.size() + chunks.size();
  add("RIFF");
  for (size_t i = 0; i < 4; ++i) file.push_back(static_cast<std::byte>(size >> (8 * i)));
  add("WEBPVP8X");
  add(std::string_view("\x0a\0\0\0", 4));
  for (const uint8_t v : vp8x_flags_and_size) file.push_back(std::byte{v});
  file.insert(file.end(), chunks.begin(), chunks.end());
  return file;
}

TEST(WebP, StillPicturesOrientationAndRefusals) {
  const Image image = test_picture(32, 20);
  const FileBytes file = webp_of(image);
  EXPECT_EQ(largest_difference(decode_image(file, "x"), image), 0);
  for (size_t i = 0; i < 100; ++i) EXPECT_NE(decode_error(without_end(file, file.size() * i / 100)), "") << i;

  FileBytes chunks(file.begin() + 12, file.end());  // the image's chunk, then EXIF
  const std::vector<uint8_t> tiff = exif_tiff(6, false);
  for (const char c : std::string("EXIF")) chunks.push_back(static_cast<std::byte>(c));
  for (size_t i = 0; i < 4; ++i) chunks.push_back(static_cast<std::byte>(tiff.size() >> (8 * i)));
  for (const uint8_t v : tiff) chunks.push_back(std::byte{v});
  const FileBytes turned = riff({0x08, 0, 0, 0, 31, 0, 0, 19, 0, 0}, chunks);
  EXPECT_EQ(largest_difference(decode_image(turned, "x"), upright(image, 6)), 0);
  EXPECT_EQ(image_size(turned, "x").width, 20);

  expect_error(riff({0x02, 0, 0, 0, 31, 0, 0, 19, 0, 0}, FileBytes(64)), "animated WebP");

  std::vector<uint8_t> rgba;
  for (int i = 0; i < 16; ++i) rgba.insert(rgba.end(), {10, 20, 30, static_cast<uint8_t>(i % 2 == 0 ? 255 : 0)});
  uint8_t* out = nullptr;
  const size_t size = WebPEncodeLosslessRGBA(rgba.data(), 4, 4, 16, &out);
  const Image over = decode_image(std::as_bytes(std::span(out, size)), "x");
  WebPFree(out);
  EXPECT_EQ((std::vector<uint8_t>(over.rgb.begin(), over.rgb.begin() + 6)),
            (std::vector<uint8_t>{10, 20, 30, 255, 255, 255}));
}

#endif

}  // namespace
}  // namespace lh::image_test
