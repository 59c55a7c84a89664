// The formats of image files: how each is recognised, and which decoder reads it where its library was there when
// lora-host was built.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/codecs.h"

namespace lh {

struct ImageFormat {
  std::string_view name;                            // "GIF"
  std::span<const std::string_view> extensions;     // ".gif"
  bool (*begins)(Bytes file);                       // does a file begin as one of these does?
  ImageHeader (*header)(Bytes file) = nullptr;      // none: cannot be read
  Image (*decode)(Bytes file) = nullptr;            // likewise
  std::string (*parameters)(Bytes file) = nullptr;  // how it was made; none: no program says it in such files
  std::string_view package = {};            // of Debian, with what it is read by; empty: it cannot be read at all
  bool (*decodes)() = [] { return true; };  // of a library whose own libraries may be missing
  bool read() const { return header != nullptr && decodes(); }
};

std::span<const ImageFormat> image_formats();
// The one that a file begins as, whether it can be read or not; nullptr for anything else.
const ImageFormat* format_of(Bytes file);

std::vector<std::string_view> image_extensions();  // ".png", of the formats that are read
// By the extension of a name: of a format that is read, and of any format.
bool is_image_name(const std::filesystem::path& path);
bool is_any_image_name(const std::filesystem::path& path);
// "JPEG, PNG, WebP", of those that are read; and "GIF (libgif-dev)", of those that need a library.
std::string formats_that_are_read();
std::string formats_without_library();

}  // namespace lh
