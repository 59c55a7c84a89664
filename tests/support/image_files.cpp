// Encoding images with libjpeg and libpng; their default error handlers end the test program.
#include "support/image_files.h"

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "core/error.h"
#include "data/codecs.h"

namespace lh::test {

Image test_picture(int64_t width, int64_t height) {
  Image image{width, height, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (const int64_t v : {x * 255 / width, y * 255 / height, (x + 2 * y) * 255 / (width + 2 * height)})
        image.rgb.push_back(static_cast<uint8_t>(v));
  return image;
}

FileBytes encode_jpeg(int64_t width, int64_t height, std::vector<uint8_t> pixels, const JpegOptions& options) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = options.components;
  jpeg.in_color_space = options.components == 1 ? JCS_GRAYSCALE : options.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  if (options.ycck) jpeg_set_colorspace(&jpeg, JCS_YCCK);
  jpeg_set_quality(&jpeg, 95, TRUE);
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (!options.exif.empty())
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, options.exif.data(), static_cast<unsigned>(options.exif.size()));
  for (int64_t y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + y * width * options.components;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  const auto* first = reinterpret_cast<const std::byte*>(out);
  FileBytes bytes(first, first + size);
  std::free(out);
  return bytes;
}

FileBytes encode_png_as(int64_t width, int64_t height, size_t row_bytes, std::vector<uint8_t> rows,
                        const PngOptions& options) {
  FileBytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep bytes, size_t count) {
        auto* to = static_cast<FileBytes*>(png_get_io_ptr(p));
        const auto* first = reinterpret_cast<const std::byte*>(bytes);
        to->insert(to->end(), first, first + count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), options.bit_depth,
               options.color_type, options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (size_t i = 0; i + 2 < options.palette.size(); i += 3)
    palette.push_back({options.palette[i], options.palette[i + 1], options.palette[i + 2]});
  if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  if (!options.palette_alpha.empty())
    png_set_tRNS(png, info, options.palette_alpha.data(), static_cast<int>(options.palette_alpha.size()), nullptr);
  if (const auto& colour = options.transparent_colour; !colour.empty()) {
    png_color_16 value{};
    value.gray = colour[0];
    if (colour.size() == 3) {
      value.red = colour[0];
      value.green = colour[1];
      value.blue = colour[2];
    }
    png_set_tRNS(png, info, nullptr, 0, &value);
  }
  std::vector<uint8_t> exif = options.exif;
  if (!exif.empty()) png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), exif.data());
  std::vector<png_bytep> lines;
  for (int64_t y = 0; y < height; ++y) lines.push_back(rows.data() + static_cast<size_t>(y) * row_bytes);
  png_write_info(png, info);
  png_write_image(png, lines.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::vector<uint8_t> exif_tiff(int orientation, bool little_endian) {
  const auto o = static_cast<uint8_t>(orientation);
  if (little_endian) return {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1, 0, 0, 0, o, 0, 0, 0, 0, 0, 0, 0};
  return {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, o, 0, 0, 0, 0, 0, 0};
}

void write_file(const std::filesystem::path& path, const FileBytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

std::vector<uint8_t> pixels_of(const std::filesystem::path& path) { return decode_image(path).rgb; }

std::string decode_error(const FileBytes& file) {
  try {
    decode_image(file, "folder/image");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::data);
    EXPECT_NE(std::string(error.what()).find("folder/image"), std::string::npos) << error.what();
    return error.what();
  }
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TempFolder::TempFolder(const std::string& name)
    : path_(std::filesystem::path(testing::TempDir()) / (name + "_" + std::to_string(getpid()))) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lh::test
