// GIF by giflib: the first frame on its canvas. What a frame does not cover is transparent, as its transparent colour
// is.
#include "data/codecs.h"

#ifdef LORA_GIF
#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace lh {
namespace {

struct Gif {
  explicit Gif(Bytes bytes) : file(bytes) {
    const auto read = [](GifFileType* gif, GifByteType* to, int count) {
      auto& self = *static_cast<Gif*>(gif->UserData);
      const size_t got = std::min(static_cast<size_t>(std::max(count, 0)), self.file.size() - self.at);
      if (got > 0) std::memcpy(to, self.file.data() + self.at, got);
      self.at += got;
      return static_cast<int>(got);
    };
    int error = 0;
    handle = DGifOpen(this, read, &error);
    if (handle == nullptr) refuse(error);
  }
  ~Gif() {
    if (handle != nullptr) DGifCloseFile(handle, nullptr);
  }
  Gif(const Gif&) = delete;
  Gif& operator=(const Gif&) = delete;

  [[noreturn]] static void refuse(int error) {
    const char* text = GifErrorString(error);
    fail(Code::data, "damaged or cut-short GIF: {} (save the image again or fetch the file anew)",
         text != nullptr ? text : "the file ends too early");
  }
  void check(int status) const {
    if (status != GIF_OK) refuse(handle->Error);
  }
  // Goes on to the next frame; false at the end of the file. Gives the transparent colour that stands in front of it.
  bool next_frame(int& transparent) const {
    transparent = NO_TRANSPARENT_COLOR;
    for (GifRecordType type = UNDEFINED_RECORD_TYPE; type != TERMINATE_RECORD_TYPE;) {
      check(DGifGetRecordType(handle, &type));
      if (type == IMAGE_DESC_RECORD_TYPE) return check(DGifGetImageDesc(handle)), true;
      if (type != EXTENSION_RECORD_TYPE) continue;
      int code = 0;
      GifByteType* block = nullptr;  // its length, then its bytes
      check(DGifGetExtension(handle, &code, &block));
      GraphicsControlBlock control{};
      if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr &&
          DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
        transparent = control.TransparentColor;
      while (block != nullptr) check(DGifGetExtensionNext(handle, &block));
    }
    return false;
  }
  void skip_pixels() const {
    int size = 0;
    GifByteType* block = nullptr;
    check(DGifGetCode(handle, &size, &block));
    while (block != nullptr) check(DGifGetCodeNext(handle, &block));
  }

  Bytes file;
  size_t at = 0;
  GifFileType* handle = nullptr;
};

void require_frame(const Gif& gif, int& transparent) {
  check_image_size(gif.handle->SWidth, gif.handle->SHeight);
  if (!gif.next_frame(transparent)) fail(Code::data, "a GIF without a frame: there is no image in it");
  const GifImageDesc& frame = gif.handle->Image;
  check_image_size(frame.Width, frame.Height);
  if (frame.Left < 0 || frame.Top < 0 || frame.Left + frame.Width > gif.handle->SWidth ||
      frame.Top + frame.Height > gif.handle->SHeight)
    fail(Code::data, "damaged GIF: its first frame, {} x {} at {}, {}, lies outside its canvas of {} x {}", frame.Width,
         frame.Height, frame.Left, frame.Top, gif.handle->SWidth, gif.handle->SHeight);
}

}  // namespace

ImageHeader gif_header(Bytes file) {
  const Gif gif(file);
  int transparent = 0;
  require_frame(gif, transparent);
  gif.skip_pixels();
  return {.size = {gif.handle->SWidth, gif.handle->SHeight}, .animated = gif.next_frame(transparent)};
}

Image decode_gif(Bytes file) {
  const Gif gif(file);
  int transparent = 0;
  require_frame(gif, transparent);
  const GifImageDesc frame = gif.handle->Image;
  const ColorMapObject* colours = frame.ColorMap != nullptr ? frame.ColorMap : gif.handle->SColorMap;
  if (colours == nullptr) fail(Code::data, "damaged GIF: it has no colours");
  const int64_t width = gif.handle->SWidth, height = gif.handle->SHeight;
  const auto pixels = static_cast<size_t>(width * height);
  Image image{width, height, std::vector<uint8_t>(3 * pixels, 255), std::vector<uint8_t>(pixels, 0)};
  std::vector<GifPixelType> line(static_cast<size_t>(frame.Width));
  const auto read_line = [&](int64_t y) {
    if (DGifGetLine(gif.handle, line.data(), frame.Width) != GIF_OK) Gif::refuse(gif.handle->Error);
    for (size_t x = 0; x < line.size(); ++x) {
      if (line[x] == transparent) continue;
      if (line[x] >= colours->ColorCount)
        fail(Code::data, "damaged GIF: colour {} of {}", line[x], colours->ColorCount);
      const GifColorType& colour = colours->Colors[line[x]];
      const size_t at = static_cast<size_t>((frame.Top + y) * width + frame.Left) + x;
      const std::array<uint8_t, 3> rgb{colour.Red, colour.Green, colour.Blue};
      std::ranges::copy(rgb, image.rgb.begin() + static_cast<std::ptrdiff_t>(3 * at));
      image.alpha[at] = 255;
    }
  };
  struct Pass {
    int64_t first, step;
  };
  constexpr std::array<Pass, 4> interlaced{{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
  constexpr std::array<Pass, 1> plain{{{0, 1}}};
  for (const Pass& pass : frame.Interlace ? std::span<const Pass>(interlaced) : std::span<const Pass>(plain))
    for (int64_t y = pass.first; y < frame.Height; y += pass.step) read_line(y);
  return image;
}

}  // namespace lh

#endif
