// The headers of the library need FILE and size_t before them.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include "data/thumbnail.h"

#include <algorithm>
#include <csetjmp>
#include <cstdlib>

#include "core/error.h"

namespace lh {
namespace {

constexpr int quality = 80;

struct Writer {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  Writer() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr common) { std::longjmp(static_cast<Writer*>(common->client_data)->jump, 1); };
    errors.output_message = [](j_common_ptr) {};
  }
  ~Writer() {
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
};

// Holds no object with a destructor: the library jumps out of it.
bool compress(Writer& w, const Image& image) {
  if (setjmp(w.jump) != 0) return false;
  jpeg_create_compress(&w.jpeg);
  jpeg_mem_dest(&w.jpeg, &w.bytes, &w.size);
  w.jpeg.image_width = static_cast<JDIMENSION>(image.width);
  w.jpeg.image_height = static_cast<JDIMENSION>(image.height);
  w.jpeg.input_components = 3;
  w.jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&w.jpeg);
  jpeg_set_quality(&w.jpeg, quality, TRUE);
  jpeg_start_compress(&w.jpeg, TRUE);
  while (w.jpeg.next_scanline < w.jpeg.image_height) {
    auto* row = const_cast<uint8_t*>(image.rgb.data()) + int64_t{w.jpeg.next_scanline} * image.width * 3;
    jpeg_write_scanlines(&w.jpeg, &row, 1);
  }
  jpeg_finish_compress(&w.jpeg);
  return true;
}

}  // namespace

std::string jpeg_thumbnail(const Image& image, int64_t side) {
  const int64_t longer = std::max({image.width, image.height, side});
  const auto scaled = [&](int64_t length) { return std::max<int64_t>(1, length * side / longer); };
  const Image small = resize_and_crop(image, scaled(image.width), scaled(image.height));
  Writer writer;
  if (!compress(writer, small)) fail(Code::resource, "no thumbnail can be made: there is no memory left for it");
  return {reinterpret_cast<const char*>(writer.bytes), writer.size};
}

}  // namespace lh
