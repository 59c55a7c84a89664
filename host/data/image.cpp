// Image files of any supported format: recognised by their first bytes, checked against the limits, decoded upright.
#include "data/image.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/error.h"
#include "data/codecs.h"
#include "data/image_formats.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// What can be read, or what to do with a file that cannot.
const ImageFormat& readable_format(Bytes file) {
  if (file.empty()) fail(Code::data, "the file is empty (0 bytes): fetch it anew or remove it");
  const ImageFormat* format = format_of(file);
  if (format != nullptr && format->read()) return *format;
  if (format != nullptr && !format->package.empty())
    fail(Code::data,
         "{} cannot be read: its library was not there when this lora-host was built, or is not there now (install {}, "
         "or convert the image to PNG)",
         format->name, format->package);
  std::string first;
  for (size_t i = 0; i < file.size() && i < 8; ++i)
    first += fmt::format("{}{:02x}", i == 0 ? "" : " ", std::to_integer<int>(file[i]));
  const bool text = file[0] == std::byte{'<'} || file[0] == std::byte{'{'};
  fail(Code::data, "expected an image ({}), found {} file (it begins with {}): convert or remove it",
       formats_that_are_read(),
       format != nullptr ? fmt::format("a {}", format->name)
       : text            ? "a text"
                         : "an unknown",
       first);
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
  if (!fs::exists(status)) {
    const bool link = fs::is_symlink(fs::symlink_status(path, ignored));
    fail(Code::data, "image {}: {}", path.string(),
         link ? "a link that leads to no file: mend or remove it" : "there is no such file");
  }
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
    const ImageFormat& format = readable_format(file);
    const ImageHeader header = format.header(file);
    Image image = format.decode(file);
    image.alpha = {};
    return apply_orientation(std::move(image), header.orientation);
  });
}

Image decode_alpha(Bytes file, const fs::path& name) {
  return with_name(name, [&] {
    const ImageFormat& format = readable_format(file);
    const ImageHeader header = format.header(file);
    Image image = format.decode(file);
    image.alpha.resize(image.rgb.size() / 3, 255);  // without alpha all of it is opaque
    for (size_t i = 0; i < image.alpha.size(); ++i)
      std::fill_n(image.rgb.begin() + 3 * static_cast<int64_t>(i), 3, image.alpha[i]);
    return apply_orientation(std::move(image), header.orientation);
  });
}

ImageSize image_size(Bytes file, const fs::path& name) {
  return with_name(name, [&]() -> ImageSize {
    const ImageHeader header = readable_format(file).header(file);
    if (header.orientation >= 5) return {header.size.height, header.size.width};
    return header.size;
  });
}

bool image_is_animated(Bytes file, const fs::path& name) {
  return with_name(name, [&] { return readable_format(file).header(file).animated; });
}

Image decode_image(const fs::path& path) { return decode_image(read_image_file(path), path); }

ImageSize image_size(const fs::path& path) { return image_size(read_image_file(path), path); }

}  // namespace lh
