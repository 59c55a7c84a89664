// TIFF by libtiff: the first image of a file, of 8 or 16 bits, in any compression that the library has.
#include "data/codecs.h"

#ifdef LORA_TIFF
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/error.h"

namespace lh {
namespace {

constexpr tmsize_t most_memory = tmsize_t{1} << 30;  // that the library may take at once

struct Tiff {
  explicit Tiff(Bytes bytes) : file(bytes) {
    const auto keep = [](TIFF*, void* self, const char*, const char* format, va_list arguments) {
      Tiff& tiff = *static_cast<Tiff*>(self);
      if (tiff.message[0] == 0) std::vsnprintf(tiff.message.data(), tiff.message.size(), format, arguments);
      return 1;
    };
    TIFFOpenOptions* options = TIFFOpenOptionsAlloc();
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, most_memory);
    TIFFOpenOptionsSetErrorHandlerExtR(options, keep, this);
    TIFFOpenOptionsSetWarningHandlerExtR(
        options, [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
    handle = TIFFClientOpenExt(
        "", "rm", this, read, nothing, seek, [](thandle_t) { return 0; }, size, nullptr, nullptr, options);
    TIFFOpenOptionsFree(options);
    if (handle == nullptr) refuse();
  }
  ~Tiff() {
    if (handle != nullptr) TIFFClose(handle);
  }
  Tiff(const Tiff&) = delete;
  Tiff& operator=(const Tiff&) = delete;

  [[noreturn]] void refuse() const {
    fail(Code::data, "damaged, cut-short or unusual TIFF: {} (save the image again, as PNG, or fetch the file anew)",
         message[0] != 0 ? message.data() : "the library does not say why");
  }
  ImageHeader header() const {
    uint32_t width = 0, height = 0;
    uint16_t orientation = 1;
    if (TIFFGetField(handle, TIFFTAG_IMAGEWIDTH, &width) == 0 ||
        TIFFGetField(handle, TIFFTAG_IMAGELENGTH, &height) == 0)
      fail(Code::data, "damaged TIFF: it does not say its size");
    check_image_size(width, height);
    TIFFGetFieldDefaulted(handle, TIFFTAG_ORIENTATION, &orientation);
    return {.size = {width, height}, .orientation = orientation >= 1 && orientation <= 8 ? orientation : 1};
  }

  Bytes file;
  uint64_t at = 0;
  std::array<char, 1024> message{};
  TIFF* handle = nullptr;

 private:
  static tmsize_t read(thandle_t self, void* to, tmsize_t count) {
    Tiff& tiff = *static_cast<Tiff*>(self);
    const uint64_t left = tiff.file.size() - std::min<uint64_t>(tiff.at, tiff.file.size());
    const uint64_t got = std::min(left, static_cast<uint64_t>(std::max<tmsize_t>(count, 0)));
    if (got > 0) std::memcpy(to, tiff.file.data() + tiff.at, got);
    tiff.at += got;
    return static_cast<tmsize_t>(got);
  }
  static tmsize_t nothing(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t seek(thandle_t self, toff_t offset, int whence) {
    Tiff& tiff = *static_cast<Tiff*>(self);
    tiff.at = offset + (whence == SEEK_CUR ? tiff.at : whence == SEEK_END ? tiff.file.size() : 0);
    return tiff.at;
  }
  static toff_t size(thandle_t self) { return static_cast<Tiff*>(self)->file.size(); }
};

}  // namespace

ImageHeader tiff_header(Bytes file) { return Tiff(file).header(); }

Image decode_tiff(Bytes file) {
  Tiff tiff(file);
  const ImageSize size = tiff.header().size;
  TIFFRGBAImage reader{};
  if (TIFFRGBAImageBegin(&reader, tiff.handle, 1, tiff.message.data()) == 0) tiff.refuse();
  reader.req_orientation = reader.orientation;  // as stored
  const bool has_alpha = reader.alpha != 0;
  std::vector<uint32_t> raster(static_cast<size_t>(size.width * size.height));
  const int whole =
      TIFFRGBAImageGet(&reader, raster.data(), static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height));
  TIFFRGBAImageEnd(&reader);
  if (whole == 0 || tiff.message[0] != 0) tiff.refuse();
  Image image{size.width, size.height, {}};
  image.rgb.reserve(3 * raster.size());
  if (has_alpha) image.alpha.reserve(raster.size());
  for (const uint32_t pixel : raster) {  // colours are multiplied by alpha: white shines through with the rest
    const uint32_t white = has_alpha ? 255 - TIFFGetA(pixel) : 0;
    for (const uint32_t colour : {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)})
      image.rgb.push_back(static_cast<uint8_t>(std::min<uint32_t>(colour + white, 255)));
    if (has_alpha) image.alpha.push_back(static_cast<uint8_t>(TIFFGetA(pixel)));
  }
  return image;
}

}  // namespace lh

#endif
