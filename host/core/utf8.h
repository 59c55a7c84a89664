#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lh {

// Where the first byte is that begins no character of UTF-8; nothing where all is well.
std::optional<size_t> invalid_utf8(std::string_view text);
// With U+FFFD in place of what begins no character.
std::string mended_utf8(std::string_view text);

}  // namespace lh
