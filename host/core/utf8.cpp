#include "core/utf8.h"

#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <cstdint>

namespace lh {

std::optional<size_t> invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    UChar32 character = 0;
    U8_NEXT(bytes, at, text.size(), character);
    if (character < 0) return start;
  }
  return std::nullopt;
}

std::string mended_utf8(std::string_view text) {
  std::string out;
  icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())}).toUTF8String(out);
  return out;
}

}  // namespace lh
