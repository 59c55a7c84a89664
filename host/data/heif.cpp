// HEIC and AVIF by libheif: the primary image, as the file turns and mirrors it. The library is opened when the first
// such file comes: a system without it reads all other images, and what it brings along is no part of this program's
// packages.
#include "data/codecs.h"

#ifdef LORA_HEIF
#include <libheif/heif.h>

#include <algorithm>
#include <boost/dll/shared_library.hpp>
#include <memory>
#include <string>

#include "core/error.h"

namespace lh {
namespace {

// The functions of the library, or why there are none.
struct Library {
  boost::dll::shared_library file;
  std::string missing;

#define LORA_HEIF_FUNCTIONS(X)             \
  X(context_alloc)                         \
  X(context_free)                          \
  X(context_get_primary_image_handle)      \
  X(context_read_from_memory_without_copy) \
  X(context_set_maximum_image_size_limit)  \
  X(decode_image)                          \
  X(decoding_options_alloc)                \
  X(decoding_options_free)                 \
  X(have_decoder_for_format)               \
  X(image_get_height)                      \
  X(image_get_plane_readonly)              \
  X(image_get_width)                       \
  X(image_handle_get_height)               \
  X(image_handle_get_width)                \
  X(image_handle_has_alpha_channel)        \
  X(image_handle_is_premultiplied_alpha)   \
  X(image_handle_release)                  \
  X(image_release)                         \
  X(init)

#define LORA_HEIF_MEMBER(name) decltype(&heif_##name) name = nullptr;
  LORA_HEIF_FUNCTIONS(LORA_HEIF_MEMBER)
#undef LORA_HEIF_MEMBER

  Library() {
    try {
      file.load("libheif.so.1", boost::dll::load_mode::search_system_folders);
#define LORA_HEIF_SYMBOL(name) name = &file.get<std::remove_pointer_t<decltype(name)>>("heif_" #name);
      LORA_HEIF_FUNCTIONS(LORA_HEIF_SYMBOL)
#undef LORA_HEIF_SYMBOL
      init(nullptr);
    } catch (const std::exception& error) {
      missing = error.what();
    }
  }
};

const Library& library() {
  static const auto* opened = new Library;  // stays: its threads may outlive what is ended in order
  return *opened;
}

const Library& heif() {
  if (!library().missing.empty())
    fail(Code::data, "HEIC and AVIF cannot be read: {} (install libheif1, or convert the image to PNG)",
         library().missing);
  return library();
}

template <typename T, auto release>
struct Release {
  void operator()(T* object) const { (library().*release)(object); }
};
template <typename T, auto release>
using Owned = std::unique_ptr<T, Release<T, release>>;

void check(const heif_error& error) {
  if (error.code == heif_error_Ok) return;
  fail(Code::data,
       "damaged, cut-short or unusual HEIC or AVIF: {} (save the image again, as PNG, or fetch the file anew)",
       error.message);
}

class Picture {
 public:
  explicit Picture(Bytes file) : context_(heif().context_alloc()) {
    heif().context_set_maximum_image_size_limit(context_.get(), max_image_side);
    check(heif().context_read_from_memory_without_copy(context_.get(), file.data(), file.size(), nullptr));
    heif_image_handle* primary = nullptr;
    check(heif().context_get_primary_image_handle(context_.get(), &primary));
    handle_.reset(primary);
    check_image_size(size().width, size().height);
  }
  ImageSize size() const {
    return {heif().image_handle_get_width(handle_.get()), heif().image_handle_get_height(handle_.get())};
  }
  bool has_alpha() const { return heif().image_handle_has_alpha_channel(handle_.get()) != 0; }
  bool is_premultiplied() const { return heif().image_handle_is_premultiplied_alpha(handle_.get()) != 0; }
  Owned<heif_image, &Library::image_release> decode() const {
    const Owned<heif_decoding_options, &Library::decoding_options_free> options(heif().decoding_options_alloc());
    options->convert_hdr_to_8bit = 1;
    options->strict_decoding = 1;
    heif_image* image = nullptr;
    check(heif().decode_image(handle_.get(), &image, heif_colorspace_RGB,
                              has_alpha() ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, options.get()));
    return Owned<heif_image, &Library::image_release>(image);
  }

 private:
  Owned<heif_context, &Library::context_free> context_;
  Owned<heif_image_handle, &Library::image_handle_release> handle_;
};

bool decodes(heif_compression_format format) {
  return library().missing.empty() && library().have_decoder_for_format(format) != 0;
}

}  // namespace

bool decodes_avif() { return decodes(heif_compression_AV1); }
bool decodes_heic() { return decodes(heif_compression_HEVC); }

ImageHeader heif_header(Bytes file) { return {.size = Picture(file).size()}; }

Image decode_heif(Bytes file) {
  const Picture picture(file);
  const ImageSize size = picture.size();
  const auto decoded = picture.decode();
  constexpr heif_channel plane = heif_channel_interleaved;
  if (heif().image_get_width(decoded.get(), plane) != size.width ||
      heif().image_get_height(decoded.get(), plane) != size.height)
    fail(Code::data, "damaged HEIC or AVIF: its pixels are not {} x {}, as it says", size.width, size.height);
  int stride = 0;
  const uint8_t* rows = heif().image_get_plane_readonly(decoded.get(), plane, &stride);
  Image image{size.width, size.height, {}};
  const bool alpha = picture.has_alpha(), premultiplied = picture.is_premultiplied();
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x) {
      const uint8_t* pixel = rows + y * stride + x * (alpha ? 4 : 3);
      const uint8_t opaque = alpha ? pixel[3] : 255;
      for (int c = 0; c < 3; ++c)
        image.rgb.push_back(premultiplied ? static_cast<uint8_t>(std::min(pixel[c] + 255 - opaque, 255))
                                          : over_white(pixel[c], opaque));
      if (alpha) image.alpha.push_back(opaque);
    }
  return image;
}

}  // namespace lh

#endif
