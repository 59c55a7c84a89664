// The comment of EXIF, where programs keep how an image was made in files that have no texts:
//   header -> directory 0 -> EXIF directory -> UserComment: a character code of 8 bytes, then the text.
#include <unicode/unistr.h>

#include <string_view>

#include "core/utf8.h"
#include "data/codecs.h"
#include "data/tiff_reader.h"

namespace lh {
namespace {

constexpr uint32_t exif_directory_tag = 0x8769, comment_tag = 0x9286, type_long = 4, type_bytes = 7;
constexpr std::string_view utf16_code("UNICODE\0", 8);
constexpr size_t block_header = 8, directory_of_one = 2 + 12 + 4;

void put_number(std::vector<std::byte>& out, uint32_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void put_directory(std::vector<std::byte>& out, uint32_t tag, uint32_t type, uint32_t count, size_t value) {
  put_number(out, 1, 2);
  put_number(out, tag, 2);
  put_number(out, type, 2);
  put_number(out, count, 4);
  put_number(out, static_cast<uint32_t>(value), 4);
  put_number(out, 0, 4);  // none follows
}

}  // namespace

// UTF-16 in the order of the block, which is the one that every reader takes it for.
std::vector<std::byte> exif_with_comment(const std::string& text) {
  const icu::UnicodeString units = icu::UnicodeString::fromUTF8(text);
  const auto count = static_cast<uint32_t>(utf16_code.size()) + 2 * static_cast<uint32_t>(units.length());
  std::vector<std::byte> out{std::byte{'M'}, std::byte{'M'}};
  put_number(out, 42, 2);
  put_number(out, block_header, 4);
  put_directory(out, exif_directory_tag, type_long, 1, block_header + directory_of_one);
  put_directory(out, comment_tag, type_bytes, count, block_header + 2 * directory_of_one);
  for (const char c : utf16_code) out.push_back(static_cast<std::byte>(c));
  for (int32_t i = 0; i < units.length(); ++i) put_number(out, units[i], 2);
  return out;
}

std::string exif_comment(Bytes block) {
  const Bytes tiff = without_exif_mark(block);
  TiffReader reader(tiff);
  if (!reader.ok) return "";
  const uint64_t to_exif = reader.entry(reader.u32(4), exif_directory_tag);
  const uint64_t entry = to_exif == 0 ? 0 : reader.entry(reader.u32(to_exif + 8), comment_tag);
  if (entry == 0) return "";
  const uint64_t count = reader.u32(entry + 4), begin = reader.u32(entry + 8);
  if (!reader.ok || count <= utf16_code.size() || begin > tiff.size() || count > tiff.size() - begin) return "";
  const auto* bytes = reinterpret_cast<const char*>(tiff.data() + begin);
  const std::string_view code(bytes, utf16_code.size()), text(bytes + utf16_code.size(), count - utf16_code.size());
  std::string out;
  if (code == utf16_code) {
    icu::UnicodeString units;
    for (size_t i = 0; i + 1 < text.size(); i += 2)
      units.append(static_cast<char16_t>(reader.u16(begin + utf16_code.size() + i)));
    units.toUTF8String(out);
  } else {  // the rest is read as UTF-8, of which ASCII is a part
    out = mended_utf8(text);
  }
  return out;
}

}  // namespace lh
