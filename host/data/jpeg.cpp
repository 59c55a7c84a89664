// JPEG by libjpeg-turbo. The library reports errors through callbacks that must not return: they longjmp to the one
// setjmp of each small function below, which holds no object with a destructor; the C++ callers then throw.
// The headers of the library need FILE and size_t before them.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <csetjmp>
#include <string_view>

#include "core/error.h"
#include "data/codecs.h"

namespace lh {
namespace {

constexpr int max_scans = 200;  // progressive files have about ten; thousands are an attack on time

struct JpegReader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = {};

  JpegReader() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr common) {
      auto* self = static_cast<JpegReader*>(common->client_data);
      common->err->format_message(common, self->message);
      std::longjmp(self->jump, 1);
    };
    errors.output_message = [](j_common_ptr) {};
    // Warnings mean lost image data, which the library would replace by grey pixels, except those listed here.
    errors.emit_message = [](j_common_ptr common, int level) {
      if (level >= 0) return;
      switch (common->err->msg_code) {
        case JWRN_ADOBE_XFORM:
        case JWRN_BOGUS_PROGRESSION:
        case JWRN_EXTRANEOUS_DATA:
        case JWRN_JFIF_MAJOR:
        case JWRN_TOO_MUCH_DATA: return;
        default: common->err->error_exit(common);
      }
    };
    progress.progress_monitor = [](j_common_ptr common) {
      auto* self = static_cast<JpegReader*>(common->client_data);
      if (self->jpeg.input_scan_number <= max_scans) return;
      std::snprintf(self->message, sizeof self->message, "more than %d scans", max_scans);
      std::longjmp(self->jump, 1);
    };
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
};

bool read_header(JpegReader& reader, const unsigned char* bytes, unsigned long size) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&reader.jpeg);
  reader.jpeg.progress = &reader.progress;
  jpeg_mem_src(&reader.jpeg, bytes, size);
  jpeg_save_markers(&reader.jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&reader.jpeg, TRUE);
  return true;
}

bool read_pixels(JpegReader& reader, unsigned char* pixels, size_t stride) {
  if (setjmp(reader.jump) != 0) return false;
  jpeg_start_decompress(&reader.jpeg);
  while (reader.jpeg.output_scanline < reader.jpeg.output_height) {
    JSAMPROW row = pixels + stride * reader.jpeg.output_scanline;
    jpeg_read_scanlines(&reader.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&reader.jpeg);
  return true;
}

[[noreturn]] void refuse(const JpegReader& reader) {
  fail(Code::data, "damaged or cut-short JPEG: {} (save the image again or fetch the file anew)", reader.message);
}

void open(JpegReader& reader, Bytes file) {
  if (!read_header(reader, reinterpret_cast<const unsigned char*>(file.data()), file.size())) refuse(reader);
  check_image_size(reader.jpeg.image_width, reader.jpeg.image_height);
}

// Behind its mark; empty where there is none.
Bytes exif_of_jpeg(const JpegReader& reader) {
  for (auto* marker = reader.jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const Bytes block = std::as_bytes(std::span(marker->data, marker->data_length));
    if (block.size() >= 6 && std::string_view(reinterpret_cast<const char*>(block.data()), 4) == "Exif") return block;
  }
  return {};
}

// Four-channel files hold inverted CMYK, as Adobe writes it; other readers assume the same.
std::vector<uint8_t> rgb_from_inverted_cmyk(const std::vector<uint8_t>& cmyk) {
  std::vector<uint8_t> rgb(cmyk.size() / 4 * 3);
  for (size_t i = 0; i < cmyk.size() / 4; ++i)
    for (size_t c = 0; c < 3; ++c)
      rgb[3 * i + c] = static_cast<uint8_t>((cmyk[4 * i + c] * cmyk[4 * i + 3] + 127) / 255);
  return rgb;
}

}  // namespace

ImageHeader jpeg_header(Bytes file) {
  JpegReader reader;
  open(reader, file);
  const ImageSize size{reader.jpeg.image_width, reader.jpeg.image_height};
  return {size, exif_block_orientation(exif_of_jpeg(reader))};
}

std::string jpeg_parameters(Bytes file) {
  JpegReader reader;
  open(reader, file);
  return exif_comment(exif_of_jpeg(reader));
}

Image decode_jpeg(Bytes file) {
  JpegReader reader;
  open(reader, file);
  const bool four = reader.jpeg.jpeg_color_space == JCS_CMYK || reader.jpeg.jpeg_color_space == JCS_YCCK;
  reader.jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  Image image{reader.jpeg.image_width, reader.jpeg.image_height, {}};
  const size_t stride = static_cast<size_t>(image.width) * (four ? 4 : 3);
  image.rgb.resize(stride * static_cast<size_t>(image.height));
  if (!read_pixels(reader, image.rgb.data(), stride)) refuse(reader);
  if (four) image.rgb = rgb_from_inverted_cmyk(image.rgb);
  return image;
}

}  // namespace lh
