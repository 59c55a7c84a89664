// PNG by libpng's classic interface. As with JPEG, each setjmp stands in a small function without destructors.
#include <png.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/utf8.h"
#include "data/codecs.h"
#include "io/file.h"

namespace lh {
namespace {

constexpr std::string_view parameters_key = "parameters";

struct Status {
  char message[256] = {};
};

void on_error(png_structp png, png_const_charp text) {
  auto* status = static_cast<Status*>(png_get_error_ptr(png));
  std::strncpy(status->message, text, sizeof status->message - 1);
  png_longjmp(png, 1);
}
void on_warning(png_structp, png_const_charp) {}

struct Source {
  const std::byte* next;
  size_t left;
};

struct PngReader {
  Status status;
  Source source;
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit PngReader(Bytes file) : source{file.data(), file.size()} {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &status, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png, &source, [](png_structp p, png_bytep out, size_t count) {
      auto* from = static_cast<Source*>(png_get_io_ptr(p));
      if (count > from->left) png_error(p, "the file ends too early");
      std::memcpy(out, from->next, count);
      from->next += count;
      from->left -= count;
    });
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
};

// Reads up to the pixels and asks for 8-bit RGB or RGBA.
bool start(PngReader& r) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_set_user_limits(r.png, max_image_side, max_image_side);
  // Nothing but pixels, palette and transparency: texts and profiles may unpack to a thousand times their size.
  png_set_keep_unknown_chunks(r.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(r.png, r.info);
  png_set_expand(r.png);
  png_set_scale_16(r.png);
  png_set_gray_to_rgb(r.png);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  return true;
}

// Those before the pixels, where programs write them. Packed ones may unpack to a thousand times their size.
bool read_texts(PngReader& r, png_textp* texts, int* count) {
  constexpr png_alloc_size_t largest = 1 << 20;
  constexpr png_uint_32 most = 64;
  constexpr png_byte kinds[] = "tEXt\0zTXt\0iTXt";
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_set_user_limits(r.png, max_image_side, max_image_side);
  png_set_chunk_malloc_max(r.png, largest);
  png_set_chunk_cache_max(r.png, most);
  png_set_keep_unknown_chunks(r.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_keep_unknown_chunks(r.png, PNG_HANDLE_CHUNK_AS_DEFAULT, kinds, 3);
  png_read_info(r.png, r.info);
  png_get_text(r.png, r.info, texts, count);
  return true;
}

bool finish(PngReader& r, png_bytepp rows) {
  if (setjmp(png_jmpbuf(r.png)) != 0) return false;
  png_read_image(r.png, rows);
  png_read_end(r.png, nullptr);
  return true;
}

[[noreturn]] void refuse(const char* cause) {
  fail(Code::data, "damaged or cut-short PNG: {} (save the image again or fetch the file anew)", cause);
}

uint32_t big_endian(Bytes file, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(file[offset + i]);
  return value;
}

struct Writer {
  Status status;
  std::vector<std::byte> out;
  png_structp png = nullptr;
  png_infop info = nullptr;

  Writer() {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &status, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_write_struct(&png, nullptr);
      throw std::bad_alloc();
    }
    const auto append = [](png_structp p, png_bytep bytes, size_t count) {
      auto* to = static_cast<std::vector<std::byte>*>(png_get_io_ptr(p));
      bool stored = true;
      try {
        const auto* first = reinterpret_cast<const std::byte*>(bytes);
        to->insert(to->end(), first, first + count);
      } catch (...) {
        stored = false;  // exceptions must not cross libpng
      }
      if (!stored) png_error(p, "out of memory");
    };
    png_set_write_fn(png, &out, append, [](png_structp) {});
  }
  ~Writer() { png_destroy_write_struct(&png, &info); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
};

bool write_all(Writer& w, uint32_t width, uint32_t height, const uint8_t* rgb, const png_text* text) {
  if (setjmp(png_jmpbuf(w.png)) != 0) return false;
  png_set_IHDR(w.png, w.info, width, height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  if (text != nullptr) png_set_text(w.png, w.info, text, 1);
  png_write_info(w.png, w.info);
  for (uint32_t y = 0; y < height; ++y) png_write_row(w.png, rgb + size_t{y} * width * 3);
  png_write_end(w.png, w.info);
  return true;
}

}  // namespace

ImageHeader png_header(Bytes file) {
  constexpr size_t signature = 8, frame = 12;  // length, type and CRC of a chunk
  if (file.size() < signature + frame + 13 || std::memcmp(file.data() + signature + 4, "IHDR", 4) != 0)
    refuse("no header chunk");
  ImageHeader header{{big_endian(file, 16), big_endian(file, 20)}, 1};
  check_image_size(header.size.width, header.size.height);
  for (size_t at = signature; file.size() - at >= frame;) {
    const size_t length = big_endian(file, at);
    if (length > file.size() - at - frame) break;  // the decoder says what is wrong
    if (std::memcmp(file.data() + at + 4, "eXIf", 4) == 0) {
      header.orientation = exif_block_orientation(file.subspan(at + 8, length));
      break;
    }
    at += frame + length;
  }
  return header;
}

Image decode_png(Bytes file) {
  PngReader reader(file);
  if (!start(reader)) refuse(reader.status.message);
  Image image{png_get_image_width(reader.png, reader.info), png_get_image_height(reader.png, reader.info), {}};
  check_image_size(image.width, image.height);
  const size_t channels = png_get_channels(reader.png, reader.info), stride = png_get_rowbytes(reader.png, reader.info);
  if ((channels != 3 && channels != 4) || stride != static_cast<size_t>(image.width) * channels)
    refuse("unexpected pixel layout");
  std::vector<uint8_t> pixels(stride * static_cast<size_t>(image.height));
  std::vector<png_bytep> rows(static_cast<size_t>(image.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.data() + y * stride;
  if (!finish(reader, rows.data())) refuse(reader.status.message);
  if (channels == 3) {
    image.rgb = std::move(pixels);
    return image;
  }
  image.rgb.resize(pixels.size() / 4 * 3);
  for (size_t i = 0; i < pixels.size() / 4; ++i) {
    image.alpha.push_back(pixels[4 * i + 3]);
    for (size_t c = 0; c < 3; ++c) image.rgb[3 * i + c] = over_white(pixels[4 * i + c], pixels[4 * i + 3]);
  }
  return image;
}

std::string png_parameters(Bytes file) {
  PngReader reader(file);
  png_textp texts = nullptr;
  int count = 0;
  if (!read_texts(reader, &texts, &count)) return "";
  const auto found = std::find_if(texts, texts + count,
                                  [](const png_text& text) { return std::string_view(text.key) == parameters_key; });
  if (found == texts + count) return "";
  std::string utf8;
  if (found->compression >= PNG_ITXT_COMPRESSION_NONE)
    utf8 = mended_utf8({found->text, found->itxt_length});
  else  // Latin-1, whose codes are those of Unicode
    for (const unsigned char c : std::string_view(found->text, found->text_length))
      icu::UnicodeString(UChar32{c}).toUTF8String(utf8);
  return utf8;
}

std::vector<std::byte> encode_png(const Image& image, const std::string& parameters) {
  constexpr int64_t limit = 1 << 20;
  if (image.width < 1 || image.height < 1 || image.width > limit || image.height > limit ||
      static_cast<int64_t>(image.rgb.size()) != image.width * image.height * 3)
    fail(Code::internal, "PNG: {} x {} pixels with {} bytes of RGB cannot be written", image.width, image.height,
         image.rgb.size());
  // tEXt, which every reader knows, is Latin-1; iTXt is UTF-8.
  const bool ascii = std::ranges::all_of(parameters, [](unsigned char c) { return c < 0x80; });
  std::string key(parameters_key), value = parameters;
  png_text text{};
  text.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
  text.key = key.data();
  text.text = value.data();
  (ascii ? text.text_length : text.itxt_length) = value.size();
  Writer writer;
  if (!write_all(writer, static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.height), image.rgb.data(),
                 value.empty() ? nullptr : &text))
    fail(Code::resource, "PNG: {} x {} pixels could not be encoded: {}", image.width, image.height,
         writer.status.message);
  return std::move(writer.out);
}

void write_png(const std::filesystem::path& path, const Image& image) {
  const std::vector<std::byte> bytes = encode_png(image);
  publish_file(path, static_cast<int64_t>(bytes.size()), [&](OutputFile& out) { out.write(std::span(bytes)); });
}

}  // namespace lh
