// Image files of any supported format: recognised by their first bytes, checked against the limits, decoded upright.
#include "data/image.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.h"
#include "data/codecs.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

struct Codec {
  ImageHeader (*header)(Bytes);
  Image (*decode)(Bytes);
};

bool has(Bytes file, size_t offset, std::string_view text) {
  return file.size() >= offset + text.size() && std::memcmp(file.data() + offset, text.data(), text.size()) == 0;
}

// What a foreign file probably is.
std::string_view foreign_format(Bytes file) {
  if (has(file, 0, "GIF8")) return "a GIF";
  if (has(file, 0, "BM")) return "a BMP";
  if (has(file, 0, std::string_view("II*\0", 4)) || has(file, 0, std::string_view("MM\0*", 4))) return "a TIFF";
  if (has(file, 4, "ftypavif")) return "an AVIF";
  if (has(file, 4, "ftyp")) return "a HEIC or video";
  if (has(file, 0, "\xff\x0a") || has(file, 4, "JXL ")) return "a JPEG XL";
  if (has(file, 0, "<") || has(file, 0, "{")) return "a text";
  return "an unknown";
}

Codec codec_of(Bytes file) {
  if (file.empty()) fail(Code::data, "the file is empty (0 bytes): fetch it anew or remove it");
  if (has(file, 0, "\xff\xd8\xff")) return {jpeg_header, decode_jpeg};
  if (has(file, 0, "\x89PNG\r\n\x1a\n")) return {png_header, decode_png};
  if (has(file, 0, "RIFF") && has(file, 8, "WEBP")) return {webp_header, decode_webp};
  std::string first;
  for (size_t i = 0; i < file.size() && i < 8; ++i)
    first += fmt::format("{}{:02x}", i == 0 ? "" : " ", std::to_integer<int>(file[i]));
  fail(Code::data, "expected a JPEG, PNG or WebP image, found {} file (it begins with {}): convert or remove it",
       foreign_format(file), first);
}

template <typename Function>
auto with_name(const fs::path& name, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("image {}: {}", name.string(), error.what()));
  }
}

}  // namespace

void check_image_size(int64_t width, int64_t height) {
  if (width < 1 || height < 1) fail(Code::data, "{} x {} pixels: there is no image in it", width, height);
  if (width > max_image_side || height > max_image_side || width * height > max_image_pixels)
    fail(Code::data, "{} x {} pixels exceed the limits of {} a side and {} in all (make the image smaller)", width,
         height, max_image_side, max_image_pixels);
}

std::vector<std::byte> read_image_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status)) fail(Code::data, "image {}: there is no such file", path.string());
  if (!fs::is_regular_file(status))
    fail(Code::data, "image {}: expected a regular file, found a folder, pipe or device", path.string());
  const InputFile file(path);
  if (file.size() > max_image_file)
    fail(Code::data, "image {}: {} bytes exceed the limit of {} (make the image smaller)", path.string(), file.size(),
         max_image_file);
  std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
  file.read(0, bytes);
  return bytes;
}

Image decode_image(Bytes file, const fs::path& name) {
  return with_name(name, [&] {
    const Codec codec = codec_of(file);
    const ImageHeader header = codec.header(file);
    Image image = codec.decode(file);
    image.alpha = {};
    return apply_orientation(std::move(image), header.orientation);
  });
}

Image decode_alpha(Bytes file, const fs::path& name) {
  return with_name(name, [&] {
    const Codec codec = codec_of(file);
    const ImageHeader header = codec.header(file);
    Image image = codec.decode(file);
    image.alpha.resize(image.rgb.size() / 3, 255);  // without alpha all of it is opaque
    for (size_t i = 0; i < image.alpha.size(); ++i)
      std::fill_n(image.rgb.begin() + 3 * static_cast<int64_t>(i), 3, image.alpha[i]);
    return apply_orientation(std::move(image), header.orientation);
  });
}

ImageSize image_size(Bytes file, const fs::path& name) {
  return with_name(name, [&]() -> ImageSize {
    const ImageHeader header = codec_of(file).header(file);
    if (header.orientation >= 5) return {header.size.height, header.size.width};
    return header.size;
  });
}

Image decode_image(const fs::path& path) { return decode_image(read_image_file(path), path); }

ImageSize image_size(const fs::path& path) { return image_size(read_image_file(path), path); }

}  // namespace lh
